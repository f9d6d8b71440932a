package decode

import (
	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// Event is something that happened. The loop takes them one at a time. Signatures have been checked: From is who signed.
// A Delivery is the service's handle of a message of a stream; the loop answers each with exactly one Ack or Term. An ID is
// the service's handle of a request; the loop answers each with exactly one Reserved, Refused or Resent.
type Event interface{ event() }

// Tick says what time it is. Now never goes back.
type Tick struct{ Now kvtransfer.Tick }

// ReserveAsked is a router's request for pages.
type ReserveAsked struct {
	ID   uint64
	From kvtransfer.Peer
	M    kvtransfer.Reserve
}

// ResendAsked is a router's request for replies, or its acknowledgement of an end.
type ResendAsked struct {
	ID   uint64
	From kvtransfer.Peer
	M    kvtransfer.Resend
}

// ClaimCame is a prefill worker's claim.
type ClaimCame struct {
	Delivery uint64
	From     kvtransfer.Peer
	M        kvtransfer.Claim
}

// ProgressCame restarts a lease.
type ProgressCame struct {
	Delivery uint64
	From     kvtransfer.Peer
	M        kvtransfer.Progress
}

// AbortCame says that prefill cannot serve.
type AbortCame struct {
	Delivery uint64
	From     kvtransfer.Peer
	M        kvtransfer.Abort
}

// CancelCame is a router's cancel.
type CancelCame struct {
	Delivery uint64
	From     kvtransfer.Peer
	M        kvtransfer.Cancel
}

// ManifestCame is prefill's statement of what it sent.
type ManifestCame struct {
	Delivery uint64
	From     kvtransfer.Peer
	M        kvtransfer.Manifest
}

// FrameCame is a sealed frame; nothing of it is authenticated yet.
type FrameCame struct {
	Delivery uint64
	Header   kvtransfer.FrameHeader
	Tag      [16]byte
	Sealed   []byte // only passed on
}

// FrameOpened answers OpenFrame.
type FrameOpened struct {
	Delivery uint64
	Header   kvtransfer.FrameHeader
	Tag      [16]byte
	Hash     [32]byte // of the reservation under which it was opened, as in OpenFrame
	Opening  kvtransfer.Opening
	Plain    []byte // the rows, without the hidden vector; only passed on
}

// FrameCopied answers CopyFrame.
type FrameCopied struct {
	Delivery uint64
	Header   kvtransfer.FrameHeader
	Grant    page.Grant
	Err      kvtransfer.Error
}

// Journaled answers a Journal effect with Must: the journal has acknowledged the fact, or could not.
type Journaled struct {
	Key         kvtransfer.Key
	Reservation [32]byte // hash, as in the fact
	Err         kvtransfer.Error
}

// JournalState says that the journal's buffer has become full, or has room again.
type JournalState struct{ Full bool }

// WitnessDone answers Witness. Row is the first row that differs, or -1.
type WitnessDone struct {
	Key kvtransfer.Key
	Row int
	Err kvtransfer.Error
}

// StepDone answers Step: one result for each sequence, in the same order, or the whole step's error.
type StepDone struct {
	Results []SeqResult
	Err     kvtransfer.Error
}

// SeqResult is what a step did for one sequence.
type SeqResult struct {
	Key      kvtransfer.Key
	Token    kvtransfer.Token
	Finish   kvtransfer.Finish
	Stop     string // the stop string or token that matched
	Held     []byte // with Finish, or where the work was the Last: text that was held back until now
	Mismatch string // of a witness: the layer and part that differs, "" when it agreed
}

// RouterAlive is a router's heartbeat.
type RouterAlive struct{ Peer kvtransfer.Peer }

// Zeroed answers Zero.
type Zeroed struct {
	Pages []page.ID
	Err   kvtransfer.Error
}

// StreamLost says that the KV stream was gone and has been made again, empty.
type StreamLost struct{}

// Drain says that no new request may be taken.
type Drain struct{}

func (Tick) event()         {}
func (ReserveAsked) event() {}
func (ResendAsked) event()  {}
func (ClaimCame) event()    {}
func (ProgressCame) event() {}
func (AbortCame) event()    {}
func (CancelCame) event()   {}
func (ManifestCame) event() {}
func (FrameCame) event()    {}
func (FrameOpened) event()  {}
func (FrameCopied) event()  {}
func (Journaled) event()    {}
func (JournalState) event() {}
func (WitnessDone) event()  {}
func (StepDone) event()     {}
func (RouterAlive) event()  {}
func (Zeroed) event()       {}
func (StreamLost) event()   {}
func (Drain) event()        {}
