package decode

import (
	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// Effect is something to do. The service performs the effects of one event in their order; where an effect's completion
// matters, an event tells it.
type Effect interface{ effect() }

// Reserved answers a ReserveAsked. Body is the reservation encoded: it is to be signed and sent as it is, since its hash
// binds every frame.
type Reserved struct {
	ID   uint64
	M    kvtransfer.Reservation
	Body []byte
}

// Refused answers a ReserveAsked that took no state.
type Refused struct {
	ID uint64
	M  kvtransfer.Refused
}

// Resent answers a ResendAsked: seal these replies and send them, or say that the attempt is not known.
type Resent struct {
	ID      uint64
	Key     kvtransfer.Key
	Known   bool
	Next    uint32 // how many replies there are so far
	Replies []SendReply
}

// Control is a control message for another process: a Claimed, Gone or Cancel.
type Control struct {
	To   kvtransfer.Peer
	Key  kvtransfer.Key
	Kind kvtransfer.Kind
	M    any
}

// OpenFrame: open Sealed into scratch under FrameKey and Hash; FrameOpened tells.
type OpenFrame struct {
	Delivery uint64
	Header   kvtransfer.FrameHeader
	Tag      [16]byte
	Sealed   []byte
	FrameKey [32]byte
	Hash     [32]byte // of the reservation
}

// CopyFrame: write Plain into the pages under the grant; FrameCopied tells, and gives the grant back.
type CopyFrame struct {
	Delivery uint64
	Header   kvtransfer.FrameHeader
	Grant    page.Grant
	Plain    []byte
}

// Journal records a fact. With Must, Journaled tells when the journal has acknowledged it, or could not; without, it goes to
// the bounded buffer.
type Journal struct {
	Fact Fact
	Must bool
}

// Witness: recompute layer 0 of rows [From, From+len(Tokens)) and compare; WitnessDone tells.
type Witness struct {
	Key    kvtransfer.Key
	View   page.View
	Tokens []int32 // not written by anybody
	From   int
}

// Step: run one batch; StepDone tells. At most one is out at any time.
type Step struct{ Work []SeqWork }

// SeqWork is what a step does for one sequence: compute rows [From, From+len(Tokens)) and choose the next token.
type SeqWork struct {
	Key    kvtransfer.Key
	View   page.View  // readable rows
	Grant  page.Grant // where the new row goes; the zero Grant in a witness
	Tokens []int32    // not written by anybody
	From   int

	// Last: no token may follow this one, so the text that is held back belongs in Held.
	Last bool

	// Witness: Tokens is the last prompt token; compare with the received row and with Want, and only then choose.
	Witness bool
	Want    []float32 // [Dim]; the last layer's output as prefill sent it
	Start   *Picking  // set in a witness: start choosing for this sequence afresh
}

// Picking is what choosing tokens for a sequence depends on.
type Picking struct {
	Sampling kvtransfer.Sampling
	Prompt   []int32 // not written by anybody
	Output   []int32 // output tokens of an earlier attempt
}

// SendReply: seal one numbered reply under ReplyKey and publish it to the router.
type SendReply struct {
	To       kvtransfer.Peer
	Header   kvtransfer.ReplyHeader
	Body     kvtransfer.ReplyBody
	ReplyKey [32]byte
	Hash     [32]byte // of the reservation
}

// Zero clears pages; Zeroed tells.
type Zero struct{ Pages []page.ID }

// PurgeKV removes what is left of a hand-off in the KV stream.
type PurgeKV struct{ Key kvtransfer.Key }

// Ack acknowledges a delivery.
type Ack struct{ Delivery uint64 }

// Term refuses a delivery for good.
type Term struct{ Delivery uint64 }

// Forget drops what the service keeps for choosing a sequence's tokens.
type Forget struct{ Key kvtransfer.Key }

// Beat publishes a heartbeat.
type Beat struct{ M kvtransfer.Heartbeat }

// Stop ends the process: an invariant broke. No effect follows, and no later event has any.
type Stop struct{ Err kvtransfer.Error }

func (Reserved) effect()  {}
func (Refused) effect()   {}
func (Resent) effect()    {}
func (Control) effect()   {}
func (OpenFrame) effect() {}
func (CopyFrame) effect() {}
func (Journal) effect()   {}
func (Witness) effect()   {}
func (Step) effect()      {}
func (SendReply) effect() {}
func (Zero) effect()      {}
func (PurgeKV) effect()   {}
func (Ack) effect()       {}
func (Term) effect()      {}
func (Forget) effect()    {}
func (Beat) effect()      {}
func (Stop) effect()      {}
