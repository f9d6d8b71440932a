package replay

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"quire/bus"
	"quire/journal"
)

// Item is one message of the stream, not yet looked at: one record, or several, one a line.
type Item struct {
	Sequence  uint64 // in the stream
	Time      time.Time
	Subject   string
	Signature []byte // of the last record; nil when it has none
	Data      []byte
}

// Extent is how much there is to read.
type Extent struct {
	Name        string `json:"name"`            // of the source
	First       uint64 `json:"first"`           // sequences
	Last        uint64 `json:"last"`            //
	Messages    uint64 `json:"messages"`        // fewer than last-first+1 when some were taken out
	Bytes       uint64 `json:"bytes,omitempty"` // that the stream takes
	PublicKeys  bool   `json:"signatures"`      // signatures were checked
	FirstStored string `json:"first_stored"`    // times of the server, RFC 3339
	LastStored  string `json:"last_stored"`
}

// Source gives every message once, in order.
type Source interface {
	Items(ctx context.Context, fn func(Item) error) (Extent, error)
}

// Stream is a journal on a bus, or restored from a backup.
type Stream struct {
	Reader bus.Reader
	Name   string // of the stream
}

// Items implements Source.
func (s Stream) Items(ctx context.Context, fn func(Item) error) (Extent, error) {
	st, err := s.Reader.Read(ctx, s.Name, 1, func(m bus.Stored) error {
		it := Item{Sequence: m.Sequence, Time: m.Time.UTC(), Subject: m.Subject, Data: m.Data}
		if text := strings.Join(m.Header[journal.SignatureHeader], ""); text != "" {
			sig, err := hex.DecodeString(text)
			if err != nil {
				sig = []byte(text) // verifies as nothing
			}
			it.Signature = sig
		}
		return fn(it)
	})
	return Extent{Name: s.Name, First: st.First, Last: st.Last, Messages: st.Messages, Bytes: st.Bytes}, err
}
