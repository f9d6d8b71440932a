// Package journal keeps the facts of every hand-off: what was reserved, what the gate decided, how it ended.
//
// A Record holds facts only: numbers, ids, page slots and keyed digests, never prompt text, token ids or KV bytes. Each life
// of each service writes one chain: records are numbered from 1 without a gap and each carries the hash of the one before, so
// an edit, a loss or a swap shows. A signature on a record vouches for all of its chain up to it; starts, verdicts,
// checkpoints and stops are signed, and a running process writes a checkpoint at least every half minute, so that a lost tail
// shows too. Records are JSON, so that any NATS client can read them, on <prefix>.journal.<kind>.<service>; under load a message
// carries several, one a line, and its subject has the kind of the last where that is a signed one, else "facts".
package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"quire/kvtransfer"
)

// Schema is the version of the records written here. A field is never given another meaning; what is new has a new name, and
// what an old reader must not misread has a new schema number. Schema 2 writes pages as runs and leaves out what is zero; 1 is
// read as ever.
const Schema = 2

// MaxRecord is the most bytes that a record may have.
const MaxRecord = 8 << 20

// Hash is a SHA-256 or a keyed digest; 64 hexadecimal digits in JSON.
type Hash [32]byte

// String gives 64 hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText gives 64 hexadecimal digits.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads 64 hexadecimal digits.
func (h *Hash) UnmarshalText(b []byte) error { return unhex("hash", h[:], b) }

// ID is a hand-off or claim id; 32 hexadecimal digits in JSON.
type ID [16]byte

// String gives 32 hexadecimal digits.
func (i ID) String() string { return hex.EncodeToString(i[:]) }

// MarshalText gives 32 hexadecimal digits.
func (i ID) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText reads 32 hexadecimal digits.
func (i *ID) UnmarshalText(b []byte) error { return unhex("id", i[:], b) }

func unhex(what string, dst, b []byte) error {
	if len(b) != 2*len(dst) {
		return fmt.Errorf("journal: %s: %d digits, want %d", what, len(b), 2*len(dst))
	}
	if _, err := hex.Decode(dst, b); err != nil {
		return fmt.Errorf("journal: %s: %w", what, err)
	}
	return nil
}

// Record is one fact. Who writes it fills Key, Tenant, At and Facts; the chain fills the others.
type Record struct {
	Schema  int
	Kind    Kind
	Service string // <role>-<id>
	Epoch   uint64
	Counter uint64 // from 1, without a gap within one epoch
	Prev    Hash   // SHA-256 of the record before; zero in the first
	At      kvtransfer.Tick
	Key     kvtransfer.Key
	Tenant  string
	Facts   Facts
}

// form is a record as JSON. The order of its fields is the order of the bytes that are hashed.
type form struct {
	Schema  int             `json:"schema"`
	Kind    Kind            `json:"kind"`
	Service string          `json:"service"`
	Epoch   uint64          `json:"epoch"`
	Counter uint64          `json:"counter"`
	Prev    Hash            `json:"prev"`
	At      int64           `json:"at_us"` // the writer's monotonic clock
	Handoff ID              `json:"handoff,omitzero"`
	Attempt uint32          `json:"attempt,omitzero"`
	Tenant  string          `json:"tenant,omitzero"`
	Facts   json.RawMessage `json:"facts"`
}

// Encode gives the bytes of a record.
func (r Record) Encode() ([]byte, error) {
	if r.Facts == nil {
		return nil, fmt.Errorf("journal: record of %s: no facts", r.Key)
	}
	var facts []byte
	var err error
	if u, ok := r.Facts.(Unknown); ok {
		facts = u.Raw
	} else if facts, err = json.Marshal(r.Facts); err != nil {
		return nil, fmt.Errorf("journal: record of %s: %w", r.Key, err)
	}
	b, err := json.Marshal(form{Schema: r.Schema, Kind: r.Facts.kind(), Service: r.Service, Epoch: r.Epoch, Counter: r.Counter,
		Prev: r.Prev, At: int64(r.At), Handoff: ID(r.Key.ID), Attempt: r.Key.Attempt, Tenant: r.Tenant, Facts: facts})
	if err != nil {
		return nil, fmt.Errorf("journal: record of %s: %w", r.Key, err)
	}
	if len(b) > MaxRecord {
		return nil, fmt.Errorf("journal: record of %s: length %d, limit %d", r.Key, len(b), MaxRecord)
	}
	return b, nil
}

// Split gives the records of a message, in order. Its signature is that of the last.
func Split(data []byte) [][]byte { return bytes.Split(data, []byte("\n")) }

// Decode reads a record. One of a schema that is not known is refused; facts of an unknown kind are kept as Unknown.
func Decode(b []byte) (Record, error) {
	if len(b) > MaxRecord {
		return Record{}, fmt.Errorf("journal: record: length %d, limit %d", len(b), MaxRecord)
	}
	if r, ok := fast(b); ok {
		return r, nil
	}
	return slow(b)
}

// slow reads whatever is a record, and says what is not.
func slow(b []byte) (Record, error) {
	var f form
	if err := strict(b, &f); err != nil {
		return Record{}, fmt.Errorf("journal: record of %d bytes: %w", len(b), err)
	}
	if f.Schema < 1 || f.Schema > Schema {
		return Record{}, fmt.Errorf("journal: record: schema %d, known 1 to %d", f.Schema, Schema)
	}
	r := Record{Schema: f.Schema, Kind: f.Kind, Service: f.Service, Epoch: f.Epoch, Counter: f.Counter, Prev: f.Prev,
		At: kvtransfer.Tick(f.At), Key: kvtransfer.Key{ID: kvtransfer.HandoffID(f.Handoff), Attempt: f.Attempt}, Tenant: f.Tenant}
	read, ok := readers[f.Kind]
	if !ok {
		r.Facts = Unknown{Kind: f.Kind, Raw: f.Facts}
		return r, nil
	}
	var err error
	r.Facts, err = read(f.Facts)
	if err != nil {
		return Record{}, fmt.Errorf("journal: %s record %d of %s: %w", f.Kind, f.Counter, f.Service, err)
	}
	return r, nil
}

func facts[T Facts](raw []byte) (Facts, error) {
	var v T
	if string(raw) == "null" {
		return nil, fmt.Errorf("no facts")
	}
	if err := strict(raw, &v); err != nil {
		return nil, err
	}
	return v, nil
}

// strict decodes JSON without unknown fields and with nothing after it.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.InputOffset() != int64(len(b)) {
		return fmt.Errorf("%d bytes follow the value", int64(len(b))-d.InputOffset())
	}
	return nil
}

// HashOf is the hash by which the next record of the chain names these bytes.
func HashOf(b []byte) Hash { return sha256.Sum256(b) }
