package prefill

import (
	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// Event is something that happened. The loop handles one at a time.
type Event interface{ event() }

// Tick says what time it is. The service sends one before other events and at least every 50 ms.
type Tick struct{ Now kvtransfer.Tick }

// Job is a pulled job whose router's and whose decode's signature were verified (OpenJob does both).
type Job struct {
	Delivery    uint64 // the service's name for what AckJob acknowledges
	Direct      bool   // it was addressed to this worker alone
	Reservation kvtransfer.Reservation
	Hash        [32]byte // SHA-256 of the reservation's encoded body
	Tokens      []int32  // never written
}

// JobRefused is a pulled job that nobody signed, or that cannot be read: it is dropped and counted.
type JobRefused struct {
	Delivery uint64
	Direct   bool
}

// Claimed, Gone and Cancel are decode's words, with who said them: only the decode epoch of the reservation is heard.
type (
	Claimed struct {
		From kvtransfer.Peer
		Msg  kvtransfer.Claimed
	}
	Gone struct {
		From kvtransfer.Peer
		Msg  kvtransfer.Gone
	}
	Cancel struct {
		From kvtransfer.Peer
		Msg  kvtransfer.Cancel
	}
)

// DecodeHeartbeat says that one life of a decode is there.
type DecodeHeartbeat struct {
	From   kvtransfer.Peer
	Frames string // where it takes frames directly, for the service
}

// ChunkDone answers Compute. Err means that no row of the step counts as written.
type ChunkDone struct {
	Step   uint64
	Hidden [][]float32 // for each Work of the step; nil where none was asked for
	Err    error
}

// FrameSealed says that the bytes of a frame are out of the pool: the hold of SealAndSend ends.
type FrameSealed struct{ Frame FrameID }

// FrameStored, FrameFull and FrameFailed answer SealAndSend, after FrameSealed. Full asks to send the same bytes again later.
type (
	FrameStored struct {
		Frame FrameID
		Tag   [16]byte // of the sealed bytes
	}
	FrameFull   struct{ Frame FrameID }
	FrameFailed struct {
		Frame  FrameID
		Error  kvtransfer.Error
		Sealed bool // FrameSealed came before
	}
)

// FrameID names one frame of one claim.
type FrameID struct {
	Key   kvtransfer.Key
	Claim kvtransfer.ClaimID
	Index uint32
}

// ManifestStored, ManifestFull and ManifestFailed answer SendManifest.
type (
	ManifestStored struct {
		Key   kvtransfer.Key
		Claim kvtransfer.ClaimID
	}
	ManifestFull struct {
		Key   kvtransfer.Key
		Claim kvtransfer.ClaimID
	}
	ManifestFailed struct {
		Key   kvtransfer.Key
		Claim kvtransfer.ClaimID
		Error kvtransfer.Error
	}
)

// Zeroed answers Zero.
type Zeroed struct {
	Pages []page.ID
	Err   error
}

// Drain asks to take no more jobs and to say Drained when the last hand-off has ended and its pages are free.
type Drain struct{}

// Abandon aborts every hand-off that is still open: the time for draining is over.
type Abandon struct{}

func (Tick) event()            {}
func (Job) event()             {}
func (JobRefused) event()      {}
func (Claimed) event()         {}
func (Gone) event()            {}
func (Cancel) event()          {}
func (DecodeHeartbeat) event() {}
func (ChunkDone) event()       {}
func (FrameSealed) event()     {}
func (FrameStored) event()     {}
func (FrameFull) event()       {}
func (FrameFailed) event()     {}
func (ManifestStored) event()  {}
func (ManifestFull) event()    {}
func (ManifestFailed) event()  {}
func (Zeroed) event()          {}
func (Drain) event()           {}
func (Abandon) event()         {}
