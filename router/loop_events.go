package router

import "quire/kvtransfer"

// Event is what the world tells the loop. Handle takes one at a time.
type Event interface{ event() }

// Effect is what the loop wants done. Effects are performed in order; those that take time are started in order, and their
// completion comes back as an Event.
type Effect interface{ effect() }

// Events.
type (
	// Tick says what time it is. It comes at least every 250 ms.
	Tick struct{ Now kvtransfer.Tick }
	// BusChanged says whether the connection is there, and the server's max_payload in bytes (0 = unknown).
	BusChanged struct {
		Up         bool
		MaxPayload int
	}
	// Heard is a heartbeat whose signature was good.
	Heard struct{ Heartbeat kvtransfer.Heartbeat }
	// Submitted is a new request. Ref is the service's name for it, never used twice.
	Submitted struct {
		Ref       uint64
		Tenant    string
		Tokens    []int32
		MaxTokens int // 0 = absent
		Sampling  kvtransfer.Sampling
		SeedSet   bool
		Deadline  kvtransfer.Tick // duration; 0 = default
	}
	// Reserved answers SendReserve: exactly one of Reservation, Refused and Err is set.
	Reserved struct {
		Key         kvtransfer.Key
		Reservation *kvtransfer.Reservation
		Envelope    []byte // the signed reservation, as decode made it
		Refused     kvtransfer.Error
		Err         BusFault
	}
	// JobStored answers StoreJob.
	JobStored struct {
		Key      kvtransfer.Key
		Sequence uint64
		Err      BusFault
	}
	// Replied is a reply that opened under this attempt's key.
	Replied struct {
		Key    kvtransfer.Key
		Number uint32
		Body   kvtransfer.ReplyBody
	}
	// Resent answers AskResend. The replies that it carried were opened and come with it, in order.
	Resent struct {
		Key     kvtransfer.Key
		Known   bool
		Next    uint32 // the number that decode gives next
		Replies []Replied
		Err     BusFault
	}
	// ClientGone says that nobody reads the answer any more.
	ClientGone struct{ Ref uint64 }
	// CancelAsked asks for the end of a request by its exact id and tenant.
	CancelAsked struct {
		Ask    uint64
		Tenant string
		ID     kvtransfer.HandoffID
	}
	// StatusAsked asks how far a request is.
	StatusAsked struct {
		Ask    uint64
		Tenant string
		ID     kvtransfer.HandoffID
	}
	// Drain takes nothing new any more; what runs may go on for Left, then it is cancelled.
	Drain struct{ Left kvtransfer.Tick }
)

// BusFault is how a call over the bus failed.
type BusFault string

// The faults that the loop tells apart. Anything else counts as FaultFailed.
const (
	FaultNone     BusFault = ""
	FaultNobody   BusFault = "nobody listens" // nothing was taken
	FaultTimeout  BusFault = "timeout"        // nobody knows
	FaultInvalid  BusFault = "invalid"        // the answer's signature or shape is wrong
	FaultFailed   BusFault = "failed"
	FaultTooLarge BusFault = "too large"
)

// Effects.
type (
	// Accept says that a request was admitted and is queued.
	Accept struct {
		Ref       uint64
		ID        kvtransfer.HandoffID
		Prompt    int
		MaxTokens int
		Seed      uint64
	}
	// Begin says that gate and witness let the request run: a status may be sent. At most once for each request.
	Begin struct{ Ref uint64 }
	// Give passes tokens on.
	Give struct {
		Ref    uint64
		Tokens []kvtransfer.Token
	}
	// Finish is the one end of a request. It comes without Accept when the request was not admitted.
	Finish struct {
		Ref        uint64
		End        kvtransfer.End
		RetryAfter kvtransfer.Tick // with Overloaded and 503s: when to come again
	}
	// SendReserve asks a decode. Seed makes the attempt's X25519 key; the service sets Reserve.RouterKey.
	SendReserve struct {
		Key     kvtransfer.Key
		To      kvtransfer.Peer
		Seed    [32]byte
		Reserve kvtransfer.Reserve
	}
	// StoreJob puts the reservation and the tokens on the work queue of a pool.
	StoreJob struct {
		Key         kvtransfer.Key
		Model       string // slug
		Pool        string
		Target      string // the prefill that alone may take it; kvtransfer.AnyWorker: any of the pool
		Reservation []byte
		Tokens      []int32
	}
	// DropJob deletes a job that nobody claimed; one that is gone already is fine.
	DropJob struct {
		Key      kvtransfer.Key
		Sequence uint64
	}
	// AskResend asks for replies from a number on; Ack says that the attempt is over for this router.
	AskResend struct {
		Key  kvtransfer.Key
		To   kvtransfer.Peer
		From uint32
		Ack  bool
	}
	// SendCancel tells decode to end an attempt.
	SendCancel struct {
		Key   kvtransfer.Key
		To    kvtransfer.Peer
		Error kvtransfer.Error
	}
	// Forget drops the attempt's key: replies to it are not opened any more.
	Forget struct{ Key kvtransfer.Key }
	// Record is the fact "finished" of an admitted request.
	Record struct{ Finished Finished }
	// Tape hands on what a taped tenant's request was, once it has ended well. Nothing of it is written by anybody.
	Tape struct {
		ID       kvtransfer.HandoffID
		Tenant   string
		Prompt   []int32
		Output   []int32
		Sampling kvtransfer.Sampling
		Max      int
		Finish   kvtransfer.Finish
	}
	// RecordJob is the fact that an attempt's job is on the queue.
	RecordJob struct{ Placed Placed }
	// CancelAnswered and StatusAnswered answer asks. Found is false for other tenants' requests too.
	CancelAnswered struct {
		Ask   uint64
		Found bool
	}
	// StatusAnswered carries the status, without the id in text.
	StatusAnswered struct {
		Ask    uint64
		Found  bool
		Status Status
	}
	// Drained says that no request is left.
	Drained struct{}
)

// Finished is what the journal keeps of a request's end. No text, no token ids.
type Finished struct {
	Key      kvtransfer.Key // of the last attempt; Attempt 0 when none was made
	Tenant   string
	Decode   kvtransfer.Peer // of the last attempt
	Prompt   int
	Output   int
	Seed     uint64
	Attempts int
	Finish   kvtransfer.Finish
	Error    kvtransfer.Error
	Took     kvtransfer.Tick
	Queued   kvtransfer.Tick // until the first Reserve
}

// Placed is what the journal keeps of an attempt's beginning.
type Placed struct {
	Key       kvtransfer.Key
	Tenant    string
	Decode    kvtransfer.Peer
	Prompt    int
	MaxTokens int
	Resumed   int // output tokens sent along
	Limit     Limit
	Target    string          // the prefill that the job is addressed to, or kvtransfer.AnyWorker
	Sequence  uint64          // of the job in its stream
	Queued    kvtransfer.Tick // until the first Reserve
}

func (Tick) event()        {}
func (BusChanged) event()  {}
func (Heard) event()       {}
func (Submitted) event()   {}
func (Reserved) event()    {}
func (JobStored) event()   {}
func (Replied) event()     {}
func (Resent) event()      {}
func (ClientGone) event()  {}
func (CancelAsked) event() {}
func (StatusAsked) event() {}
func (Drain) event()       {}

func (Accept) effect()         {}
func (Begin) effect()          {}
func (Give) effect()           {}
func (Finish) effect()         {}
func (SendReserve) effect()    {}
func (StoreJob) effect()       {}
func (DropJob) effect()        {}
func (AskResend) effect()      {}
func (SendCancel) effect()     {}
func (Forget) effect()         {}
func (Record) effect()         {}
func (RecordJob) effect()      {}
func (Tape) effect()           {}
func (CancelAnswered) effect() {}
func (StatusAnswered) effect() {}
func (Drained) effect()        {}
