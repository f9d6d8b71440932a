package decode

import (
	"bytes"

	"quire/kvtransfer"
	"quire/kvtransfer/wire"
)

// Tape hands on what came of an attempt of a taped tenant: exactly one of Head, Frame, Manifest and End is set. An attempt's parts
// are numbered from 0 in the order in which they came. Nothing of it is written by anybody.
type Tape struct {
	Key    kvtransfer.Key
	Tenant string
	Number uint32
	At     kvtransfer.Tick

	Head     *TapeHead
	Frame    *kvtransfer.Frame
	Manifest *kvtransfer.Manifest
	From     kvtransfer.Peer // who signed the manifest
	End      *TapeEnd
}

// TapeHead is what an attempt was bound to by its claim.
type TapeHead struct {
	Reservation []byte // as encoded
	Claim       []byte // as encoded
	Prefill     kvtransfer.Peer
	FrameKey    [32]byte
	Shape       kvtransfer.CutShape
	Tokens      []int32
	Prompt      int // how many of Tokens are the prompt
	Sampling    kvtransfer.Sampling
	Lease       kvtransfer.Lease // as it was before the claim
}

// TapeEnd is how an attempt went.
type TapeEnd struct {
	Judged  bool // the gate was asked, or the attempt was refused before it could be
	Verdict kvtransfer.Verdict
	Finish  kvtransfer.Finish
	Error   kvtransfer.Error
	Output  []int32
}

func (Tape) effect() {}

// tape hands one part on, unless the tenant's content is not recorded. Head comes first: without a claim there is nothing to
// record.
func (l *Loop) tape(h *handoff, t Tape) {
	if !l.cfg.Taped[h.in.Reservation.Tenant] || t.Head == nil && h.taped == 0 {
		return
	}
	t.Key, t.Tenant, t.Number, t.At = h.key(), h.in.Reservation.Tenant, h.taped, l.now
	h.taped++
	l.do(t)
}

// tapeHead is the first part; lease is what the claim restarted.
func (l *Loop) tapeHead(h *handoff, c kvtransfer.Claim, lease kvtransfer.Lease) {
	if !l.cfg.Taped[h.in.Reservation.Tenant] {
		return
	}
	claim, err := wire.Encode(c)
	if err != nil {
		return // it was decoded a moment ago
	}
	n := h.in.Reservation.N
	l.tape(h, Tape{Head: &TapeHead{
		Reservation: h.body, Claim: bytes.Clone(claim), Prefill: h.in.Prefill, FrameKey: h.frameKey, Shape: h.in.Shape,
		Tokens: h.tokens[:n:n], Prompt: h.prompt, Sampling: h.sampling, Lease: lease,
	}})
}

// tapeEnd is the last part.
func (l *Loop) tapeEnd(h *handoff) {
	var output []int32
	if n := h.in.Reservation.N; len(h.tokens) > n {
		output = h.tokens[n:len(h.tokens):len(h.tokens)]
	}
	l.tape(h, Tape{End: &TapeEnd{Judged: h.judged, Verdict: h.verdict, Finish: h.finish, Error: h.in.Err, Output: output}})
}
