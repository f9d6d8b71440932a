package journal

import "encoding/json"

// Kind names a fact; it is the third part of the subject.
type Kind string

// The kinds of fact that are written, in the order in which a good hand-off has them.
const (
	KindStarted    Kind = "started"    // a service began a life; the first record of its chain
	KindJob        Kind = "job"        // the router put a job on the queue
	KindReserved   Kind = "reserved"   // decode promised pages
	KindClaimed    Kind = "claimed"    // a prefill worker bound the attempt
	KindSent       Kind = "sent"       // prefill's leg is over, well or not
	KindRefused    Kind = "refused"    // decode refused a frame, a claim or a manifest
	KindVerdict    Kind = "verdict"    // the gate let the hand-off in or refused it; acknowledged before any kernel runs
	KindWitness    Kind = "witness"    // decode recomputed rows and compared; with it the first token left, or none did
	KindFinished   Kind = "finished"   // the attempt is over, well or not; from the router: the request
	KindZeroed     Kind = "zeroed"     // pages were cleared and are free
	KindCheckpoint Kind = "checkpoint" // the writer is alive; signed
	KindStopped    Kind = "stopped"    // the last record of a life that ended in order; signed

	// KindFacts stands in the subject of a message with several records of which the last is not signed. No record has it.
	KindFacts Kind = "facts"
)

// Facts is what a record says: one of the types of this file, or Unknown when another version wrote it.
type Facts interface{ kind() Kind }

// Started is a service's beginning, with what it resolved its configuration to.
type Started struct {
	Version     string `json:"version"`
	Model       string `json:"model,omitempty"` // full name
	PageSize    int    `json:"page_size,omitempty"`
	Pages       int    `json:"pages,omitempty"` // of the pool
	Layers      int    `json:"layers,omitempty"`
	MaxModelLen int    `json:"max_model_len,omitempty"`
	Slots       int    `json:"slots,omitempty"`
	LeaseMicros int64  `json:"lease_us,omitempty"`
	Open        bool   `json:"open,omitempty"`  // it works on when the journal takes no records
	Chunk       int    `json:"chunk,omitempty"` // of prefill: rows of a step
	Queue       int    `json:"queue,omitempty"` // of a router: requests that may wait
	TenantQueue int    `json:"tenant_queue,omitempty"`
	MaxAttempts int    `json:"max_attempts,omitempty"`
	MaxTokens   int    `json:"default_max_tokens,omitempty"`
	Mixed       bool   `json:"mixed_compute,omitempty"`
	Taped       int    `json:"taped,omitempty"` // tenants whose content is recorded
	Weights     Hash   `json:"weights,omitzero"`
	Layout      Hash   `json:"layout,omitzero"`
	Compute     Hash   `json:"compute,omitzero"`
}

// Job is the router's part of one attempt: where it was sent.
type Job struct {
	Decode       string `json:"decode"` // role/id@epoch
	Prompt       int    `json:"prompt"`
	MaxTokens    int    `json:"max_tokens"`
	Resumed      int    `json:"resumed,omitempty"` // output tokens sent along
	Limit        int    `json:"limit"`             // tokens that a request may take
	LimitBy      string `json:"limit_by"`
	Target       string `json:"target"`    // id of the prefill that alone could take it, or "any"
	Sequence     uint64 `json:"sequence"`  // in the stream of jobs
	QueuedMicros int64  `json:"queued_us"` // until the first Reserve
}

// Reserved is decode's promise.
type Reserved struct {
	Reservation Hash   `json:"reservation"` // hash of the signed body
	Router      string `json:"router"`      // role/id@epoch
	N           int    `json:"n"`           // rows expected in all
	C           int    `json:"c"`           // rows there already
	MaxTokens   int    `json:"max_tokens"`
	Digest      Hash   `json:"digest"` // keyed digest of the token ids
	PageSize    int    `json:"page_size"`
	Pages       Pages  `json:"pages"`
	LeaseMicros int64  `json:"lease_us"`
	Model       Hash   `json:"model,omitzero"` // the fingerprints, where they are not those of the start
	Layout      Hash   `json:"layout,omitzero"`
	Compute     Hash   `json:"compute,omitzero"`
	Prompt      int    `json:"prompt,omitempty"` // of the first attempt, where n has output tokens too
}

// Claimed is what bound an attempt to one worker.
type Claimed struct {
	Claim   ID     `json:"claim"`
	Prefill string `json:"prefill"` // role/id@epoch
}

// Sent is prefill's leg as it saw it.
type Sent struct {
	State         string `json:"state"` // done, gone, cancelled, aborted, lost
	Code          string `json:"code,omitempty"`
	Detail        string `json:"detail,omitempty"`
	Claim         ID     `json:"claim,omitzero"`
	N             int    `json:"n"`
	Rows          int    `json:"rows"`   // computed
	Frames        int    `json:"frames"` // stored
	Pages         Pages  `json:"pages,omitempty"`
	TookMicros    int64  `json:"took_us"`              // since the job came
	ComputeMicros int64  `json:"compute_us,omitempty"` // until the last row was computed
}

// Refused is what decode turned away. A record stands for Count of them; a peer that floods gets few records.
type Refused struct {
	What   string `json:"what"` // frame, unopened, claim, manifest
	Count  uint64 `json:"count"`
	Index  uint32 `json:"index,omitempty"` // of the frame
	Code   string `json:"code,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Verdict is the gate's decision, and what prefill's manifest stated.
type Verdict struct {
	Path           string `json:"path"` // "received", or "local" when decode computes the rows itself
	OK             bool   `json:"ok"`
	Check          string `json:"check,omitempty"` // which one failed
	Code           string `json:"code,omitempty"`  // why not
	Detail         string `json:"detail,omitempty"`
	Reservation    Hash   `json:"reservation"`
	Claim          ID     `json:"claim"`
	N              int    `json:"n"`
	C              int    `json:"c"`
	Sent           int    `json:"sent"`
	Frames         int    `json:"frames"` // received
	Digest         Hash   `json:"digest"` // over the frames' tags
	Pages          Pages  `json:"pages"`  // as owned from here on
	Written        Spans  `json:"written,omitempty"`
	Repeated       uint64 `json:"repeated,omitempty"` // frames that came once more
	Refused        uint64 `json:"refused,omitempty"`  // frames turned away
	ManifestMicros int64  `json:"manifest_us,omitempty"`
	FirstMicros    int64  `json:"first_us,omitempty"` // when the first frame was in the pages
}

// Witness is what came of recomputing rows. Rows [0, Read) were readable by kernels since the journal had the verdict;
// Written says which of [C, N) frames had filled, in every layer.
type Witness struct {
	Result      string `json:"result"` // agreed, refused
	Detail      string `json:"detail,omitempty"`
	Read        int    `json:"read"`
	Written     Spans  `json:"written"`
	OwnedMicros int64  `json:"owned_us"`
	Unjournaled bool   `json:"unjournaled,omitempty"` // kernels ran without an acknowledged verdict
	FirstToken  bool   `json:"first_token,omitempty"`
}

// Finished is the end of an attempt, or, from the router, of a request.
type Finished struct {
	Finish       string `json:"finish,omitempty"` // stop or length
	Code         string `json:"code,omitempty"`   // the error, when it did not end well
	Detail       string `json:"detail,omitempty"`
	Witness      string `json:"witness,omitempty"` // "agreed", "refused", or "" when none was run
	Prompt       int    `json:"prompt"`
	Output       int    `json:"output"`
	Replies      uint32 `json:"replies,omitempty"`
	Seed         uint64 `json:"seed,omitempty"`        // of the sampling, where the router records it
	Pages        int    `json:"pages,omitempty"`       // how many pages it gives back
	Quarantined  bool   `json:"quarantined,omitempty"` // they leave by way of quarantine
	Read         int    `json:"read,omitempty"`        // rows [0, read) were readable by kernels
	Rows         int    `json:"rows,omitempty"`        // rows [n, rows) were written by decode's own steps
	Written      Spans  `json:"written,omitempty"`     // of [c, n), by frames in every layer
	Unjournaled  bool   `json:"unjournaled,omitempty"`
	Decode       string `json:"decode,omitempty"`   // from the router: of the last attempt
	Attempts     int    `json:"attempts,omitempty"` // from the router
	TookMicros   int64  `json:"took_us,omitempty"`
	QueuedMicros int64  `json:"queued_us,omitempty"`
}

// Zeroed names pages that hold zeros from now on and are free.
type Zeroed struct {
	Pages          Spans `json:"pages"`       // page numbers
	ReleasedMicros int64 `json:"released_us"` // when nothing held them any more
}

// Checkpoint is a sign of life.
type Checkpoint struct {
	Lost uint64 `json:"lost,omitempty"` // records that were turned away since the start
}

// Stopped ends a chain.
type Stopped struct {
	Lost uint64 `json:"lost,omitempty"`
}

// Unknown is a fact of a kind that this version does not know, as it was written.
type Unknown struct {
	Kind Kind
	Raw  json.RawMessage
}

func (Started) kind() Kind    { return KindStarted }
func (Job) kind() Kind        { return KindJob }
func (Reserved) kind() Kind   { return KindReserved }
func (Claimed) kind() Kind    { return KindClaimed }
func (Sent) kind() Kind       { return KindSent }
func (Refused) kind() Kind    { return KindRefused }
func (Verdict) kind() Kind    { return KindVerdict }
func (Witness) kind() Kind    { return KindWitness }
func (Finished) kind() Kind   { return KindFinished }
func (Zeroed) kind() Kind     { return KindZeroed }
func (Checkpoint) kind() Kind { return KindCheckpoint }
func (Stopped) kind() Kind    { return KindStopped }
func (u Unknown) kind() Kind  { return u.Kind }

// readers read the facts of each kind.
var readers = map[Kind]func([]byte) (Facts, error){
	KindStarted: facts[Started], KindJob: facts[Job], KindReserved: facts[Reserved], KindClaimed: facts[Claimed],
	KindSent: facts[Sent], KindRefused: facts[Refused], KindVerdict: facts[Verdict], KindWitness: facts[Witness],
	KindFinished: facts[Finished], KindZeroed: facts[Zeroed], KindCheckpoint: facts[Checkpoint], KindStopped: facts[Stopped],
}

// Signs says whether a record of this kind carries a signature of its own.
func Signs(k Kind) bool {
	switch k {
	case KindStarted, KindVerdict, KindCheckpoint, KindStopped:
		return true
	}
	return false
}
