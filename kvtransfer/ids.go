package kvtransfer

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"quire/kvtransfer/page"
)

// Tick is a reading of one process's monotonic clock, in microseconds since that process started. Ticks of two processes
// are never compared; only durations (also Ticks) travel.
type Tick int64

// Durations in ticks.
const (
	Millisecond Tick = 1000
	Second      Tick = 1000 * Millisecond
)

// Role names the kind of a process.
type Role string

// The roles of a cluster.
const (
	RoleBus     Role = "bus"
	RoleRouter  Role = "router"
	RolePrefill Role = "prefill"
	RoleDecode  Role = "decode"
)

// Peer is one life of one process: the epoch grows with every start, so a message from an earlier life is told apart.
type Peer struct {
	Role  Role
	ID    string // slug: [a-z0-9-]{1,32}
	Epoch uint64 // revision of <role>.<id> in QUIRE_EPOCH; 0 is "none"
}

// String gives role/id@epoch.
func (p Peer) String() string { return fmt.Sprintf("%s/%s@%d", p.Role, p.ID, p.Epoch) }

// HandoffID is 128 random bits made by the server that admitted the request.
type HandoffID [16]byte

// String gives 32 hexadecimal digits.
func (h HandoffID) String() string { return hex.EncodeToString(h[:]) }

// Key names one attempt of one hand-off. A retry is a new attempt with a new reservation.
type Key struct {
	ID      HandoffID
	Attempt uint32 // from 1
}

// String gives <id>-<attempt>, the form used in subjects.
func (k Key) String() string {
	b := hex.AppendEncode(make([]byte, 0, 2*len(k.ID)+11), k.ID[:])
	return string(strconv.AppendUint(append(b, '-'), uint64(k.Attempt), 10))
}

// Owner is the name under which the page ledger knows this attempt.
func (k Key) Owner() page.Owner { return page.Owner{Handoff: k.ID, Attempt: k.Attempt} }

// ClaimID is 128 random bits made by the prefill worker that takes an attempt.
type ClaimID [16]byte

// String gives 32 hexadecimal digits.
func (c ClaimID) String() string { return hex.EncodeToString(c[:]) }

// Fingerprints bind a hand-off to what made and what reads its pages.
type Fingerprints struct {
	Model   [32]byte // weights + tokenizer
	Layout  [32]byte // layers, heads, head size, KV type, order of a frame's bytes
	Compute [32]byte // backend, kernel variant and version, architecture, KV type, output bits of a fixed probe
}
