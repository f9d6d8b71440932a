package prefill

import (
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
)

// Effect is something to do. Those that take time are answered by an event; each names the one. The service performs the
// effects of one Handle in order, as far as they concern the same hand-off.
type Effect interface{ effect() }

// PullJob asks for one job. Answered by Job or JobRefused, maybe never; at most one of each kind is open.
type PullJob struct {
	Direct bool // one that is addressed to this worker alone
}

// AckJob removes a job from the queue: its claim was answered, or it will never be worked here.
type AckJob struct{ Delivery uint64 }

// SendClaim, SendProgress and SendAbort are control messages to decode. They carry no message id: a claim is sent again as it
// is. None is answered.
type (
	SendClaim struct {
		To  kvtransfer.Peer
		Msg kvtransfer.Claim
	}
	SendProgress struct {
		To  kvtransfer.Peer
		Msg kvtransfer.Progress
	}
	SendAbort struct {
		To  kvtransfer.Peer
		Msg kvtransfer.Abort
	}
)

// Compute runs one step on the engine. Answered by ChunkDone. At most one is out.
type Compute struct {
	Step uint64
	Work []model.Work
}

// SealAndSend reads a frame's rows out of the pool, seals them and stores them in decode's KV stream. Answered by FrameSealed
// when the bytes are out of the pool, then by FrameStored, FrameFull or FrameFailed. The same frame gives the same bytes
// every time, and MsgID makes the stream keep one of them.
type SealAndSend struct {
	Frame  FrameID
	To     kvtransfer.Peer
	Header kvtransfer.FrameHeader
	View   page.View
	Hidden []float32 // [Header.Hidden], else nil
	Key    [32]byte  // of the frames of this claim
	Hash   [32]byte  // of the reservation
	MsgID  string
}

// SendManifest stores the manifest in decode's KV stream, signed. Answered by ManifestStored, ManifestFull or ManifestFailed.
type SendManifest struct {
	To    kvtransfer.Peer
	Msg   kvtransfer.Manifest
	MsgID string
}

// Zero clears pages. Answered by Zeroed.
type Zero struct{ Pages []page.ID }

// Ended tells how an attempt ended here: for logs, counters and the journal.
type Ended struct {
	Key      kvtransfer.Key
	Tenant   string
	Claim    kvtransfer.ClaimID
	State    kvtransfer.OutboundState
	Error    kvtransfer.Error // zero when Done
	N        int              // rows of the prompt
	Rows     int              // computed
	Frames   int              // stored
	Pages    []page.Slot      // that it had here; not written by anybody
	Took     kvtransfer.Tick  // since the job came
	Computed kvtransfer.Tick  // from then until the last row was there; 0 = it never was
}

// Freed tells that pages hold zeros and are free: for the journal.
type Freed struct {
	Pages    []page.ID
	Released kvtransfer.Tick // when nothing held them any more
}

// Drained says that nothing is left: the process may end.
type Drained struct{}

// Halt says that an invariant broke or the device cannot be trusted: the process stops.
type Halt struct{ Error kvtransfer.Error }

func (PullJob) effect()      {}
func (AckJob) effect()       {}
func (SendClaim) effect()    {}
func (SendProgress) effect() {}
func (SendAbort) effect()    {}
func (Compute) effect()      {}
func (SealAndSend) effect()  {}
func (SendManifest) effect() {}
func (Zero) effect()         {}
func (Ended) effect()        {}
func (Freed) effect()        {}
func (Drained) effect()      {}
func (Halt) effect()         {}
