package kvtransfer

import "quire/kvtransfer/page"

// The messages of a hand-off. wire turns them into bytes and back. Every message but Frame and Reply travels in a signed
// envelope that names its sender (Peer); frames and replies are sealed instead.

// Kind tells messages apart on the wire.
type Kind uint8

// Kinds of message. Numbers are part of the protocol: never reuse one.
const (
	KindReserve     Kind = 1  // router -> decode, request
	KindReservation Kind = 2  // decode -> router, reply to Reserve
	KindRefused     Kind = 3  // decode -> router, reply to Reserve or Resend
	KindJob         Kind = 4  // router -> prefill, QUIRE_JOBS
	KindClaim       Kind = 5  // prefill -> decode, QUIRE_CTL
	KindClaimed     Kind = 6  // decode -> prefill, QUIRE_CTL
	KindGone        Kind = 7  // decode -> prefill, QUIRE_CTL
	KindProgress    Kind = 8  // prefill -> decode, QUIRE_CTL
	KindAbort       Kind = 9  // prefill -> decode, QUIRE_CTL
	KindCancel      Kind = 10 // decode -> prefill, and router -> decode, QUIRE_CTL
	KindManifest    Kind = 11 // prefill -> decode, the KV stream
	KindFrame       Kind = 12 // prefill -> decode, the KV stream; sealed
	KindReply       Kind = 13 // decode -> router, core; sealed
	KindResend      Kind = 14 // router -> decode, request
	KindResent      Kind = 15 // decode -> router, reply to Resend
	KindHeartbeat   Kind = 16 // every role, core
	KindPagesAsk    Kind = 17 // router -> prefill or decode, request
	KindPages       Kind = 18 // prefill or decode -> router, reply to PagesAsk
)

// Sampling says how tokens are chosen. Zero values mean: temperature 0 = greedy, TopK 0 = off, TopP 0 or 1 = off, MinP 0 = off.
type Sampling struct {
	Temperature       float32 // [0, 2]
	TopK              int     // >= 0
	TopP              float32 // [0, 1]
	MinP              float32 // [0, 1]
	Seed              uint64  // always set by the router (picked and recorded when the client gave none)
	PresencePenalty   float32 // [-2, 2]
	FrequencyPenalty  float32 // [-2, 2]
	RepetitionPenalty float32 // (0, 2]; 0 and 1 = off
	LogitBias         []Bias  // at most 300
	Logprobs          int     // -1 = none, else how many alternatives, 0..20
	Stop              []string
	StopTokens        []int32
	IgnoreEOS         bool
	MinTokens         int
}

// Bias adds Value to the logit of Token before sampling.
type Bias struct {
	Token int32
	Value float32 // [-100, 100]
}

// Reserve asks decode for the pages of a request: prompt and max_tokens, so that nothing grows later.
type Reserve struct {
	Key          Key
	Tenant       string // slug
	Tokens       []int32
	Prompt       int      // P: how many of Tokens are the prompt; the others are output tokens of an earlier attempt
	MaxTokens    int      // how many tokens may still be made, >= 1
	Digest       [32]byte // keyed digest of Tokens, taken once at the edge
	Sampling     Sampling
	Router       Peer
	RouterKey    [32]byte // X25519, for sealing replies
	DeadlineLeft Tick     // duration
	Fingerprints Fingerprints
}

// Reservation is decode's signed promise: these pages, this many tokens, until this lease ends. Its hash is the SHA-256 of
// its encoded body and binds every frame.
type Reservation struct {
	Key          Key
	Decode       Peer
	Router       Peer
	Tenant       string
	N            int // rows that decode expects in all: len(Tokens)
	C            int // rows already there (prefix cache); 0 today
	MaxTokens    int
	Digest       [32]byte
	Pages        []page.Slot // in order of position
	PageSize     int         // token slots of a page
	Fingerprints Fingerprints
	Lease        Tick     // duration
	DecodeKey    [32]byte // X25519, one per reservation
}

// Refused answers a request that took no state.
type Refused struct {
	Key   Key
	Error Error
}

// Job is a reservation on its way to a prefill worker.
type Job struct {
	Reservation []byte // the signed envelope, as decode made it
	Tokens      []int32
}

// Claim is one prefill worker's take of one attempt. The first valid one binds it.
type Claim struct {
	Key         Key
	Claim       ClaimID
	ClaimKey    [32]byte // X25519
	Reservation [32]byte // hash of the reservation
}

// Claimed tells the worker that its claim is the one; frames may leave now.
type Claimed struct {
	Key          Key
	Claim        ClaimID
	LeaseLeft    Tick // duration
	DeadlineLeft Tick // duration
}

// Gone tells a worker that this attempt is not (or no longer) its own.
type Gone struct {
	Key   Key
	Claim ClaimID
	Error Error
}

// Progress restarts the lease; sent by compute steps, not by a timer.
type Progress struct {
	Key   Key
	Claim ClaimID
	Rows  int // rows computed so far
}

// Abort says that prefill cannot serve; it counts only for its own claim and before the verdict.
type Abort struct {
	Key   Key
	Claim ClaimID
	Error Error
}

// Cancel ends an attempt from the other side: decode tells prefill, or the router tells decode.
type Cancel struct {
	Key   Key
	Error Error
}

// Manifest is prefill's signed statement of what it sent.
type Manifest struct {
	Key         Key
	Claim       ClaimID
	Reservation [32]byte
	Tenant      string
	N           int
	C           int
	Sent        int // rows; C + Sent = N
	Pages       int // pages that rows [0, N) take
	Frames      int
	Digest      [32]byte // SHA-256 over the frames' tags in index order
}

// FrameHeader says what one frame holds. Its bytes, once opened, are [layers][rows][2: K, V][kvHeads][headDim] as stored,
// followed, in the frame that says so, by the last layer's output for the last row ([dim] f32, little endian).
type FrameHeader struct {
	Key       Key
	Claim     ClaimID
	Index     uint32
	LayerFrom int
	LayerTo   int
	RowFrom   int
	RowTo     int
	Hidden    int // length of the vector at the end, in float32s; 0 in all frames but one
}

// Frame is a header and its sealed bytes: ciphertext and, at its end, the 16-byte tag.
type Frame struct {
	Header FrameHeader
	Sealed []byte
}

// ReplyHeader names one numbered reply.
type ReplyHeader struct {
	Key       Key
	Number    uint32   // 0 is the outcome of gate and witness
	DecodeKey [32]byte // lets the router derive the key though it missed the Reservation
}

// Reply is a header and its sealed ReplyBody.
type Reply struct {
	Header ReplyHeader
	Sealed []byte
}

// ReplyBody is what a reply says: an outcome (number 0), then tokens, then one end.
type ReplyBody struct {
	Outcome *Outcome
	Tokens  []Token
	End     *End
}

// Outcome says whether the gate and the witness let the request run.
type Outcome struct {
	OK      bool
	Error   Error // when not OK; then this is also the end
	Prefill Peer  // who claimed the attempt; zero when nobody did
}

// Token is one token of an answer.
type Token struct {
	ID      int32
	Text    []byte // what this token adds to the text; empty while a character or a stop string is incomplete
	Logprob float32
	Top     []TopLogprob
}

// TopLogprob is an alternative for one token.
type TopLogprob struct {
	ID      int32
	Logprob float32
}

// Finish says why an answer ended well.
type Finish string

// The ways in which an answer ends well. Anything else is an Error.
const (
	FinishStop   Finish = "stop"   // end token, stop token or stop string
	FinishLength Finish = "length" // max_tokens reached
)

// End closes an answer: exactly one of Finish and Error is set.
type End struct {
	Finish  Finish
	Error   Error
	Text    []byte // text held back until now
	Stop    string // the stop string or token that matched, if any
	Prompt  int
	Output  int
	Replies uint32 // how many replies there are, this one included
}

// Resend asks decode for the replies from a number on, and acknowledges an end.
type Resend struct {
	Key  Key
	From uint32
	Ack  bool // the router has the end (or gave the attempt up): decode may forget it
}

// Resent carries replies again; empty means nothing new.
type Resent struct {
	Key     Key
	Known   bool // false: decode does not know this attempt (any more)
	Next    uint32
	Replies []Reply
}

// AnyWorker stands where a job names its prefill worker and any may take it. No prefill worker may have it as its id.
const AnyWorker = "any"

// DirectSlots is how many hand-offs a prefill worker takes beside its Slots when the job is addressed to it alone. So a second
// attempt that may go to one worker only need not wait behind the jobs that any may take.
const DirectSlots = 1

// Heartbeat tells others that a process lives and what it can take.
type Heartbeat struct {
	Peer         Peer
	Model        string // full name
	ModelSlug    string
	Pool         string // hash of layout and compute fingerprints, as used in job subjects
	Fingerprints Fingerprints
	MaxModelLen  int // tokens a request may take here: min(context, usable pool)
	PageSize     int
	Pages        page.Counts
	Slots        int // how many requests it works on at once
	SlotsFree    int
	Running      int
	Draining     bool
	Key          [32]byte // reserved
	Refused      Refusals // since this life began
	Frames       string   // of a decode: URL of a server that takes its frames directly; "" = they go through the bus
}

// Refusals counts what a worker turned away, by reason. They only grow.
type Refusals struct {
	Unsigned uint64 // messages that nobody with a key signed, or that cannot be read
	Reserve  uint64 // Reserves that got no promise
	Resend   uint64 // Resends of attempts that are not known, or another router's
	Claim    uint64
	Control  uint64 // control messages, and answers about frames, that fit nothing: stale, foreign or repeated
	Frame    uint64 // frames of attempts that are not known, over, or another claim's
	Unopened uint64 // frames that did not open
	Repeated uint64 // frames that came once more, or whose tag is that of one that has come
	Manifest uint64
	Job      uint64 // jobs that this worker cannot serve
}

// Reason is one line of Refusals.
type Reason struct {
	Name  string
	Count uint64
}

// Reasons lists the counts with the names that metrics use, in a fixed order.
func (r Refusals) Reasons() []Reason {
	return []Reason{{"unsigned", r.Unsigned}, {"reserve", r.Reserve}, {"resend", r.Resend}, {"claim", r.Claim}, {"control", r.Control},
		{"frame", r.Frame}, {"unopened", r.Unopened}, {"repeated", r.Repeated}, {"manifest", r.Manifest}, {"job", r.Job}}
}

// PagesAsk asks a worker who has which of its pages.
type PagesAsk struct {
	Worker Peer // who is asked
}

// Pages is a worker's pool at one moment, for people to look at: nothing is decided by it. Pages that nobody is listed with are
// free.
type Pages struct {
	Worker   Peer
	PageSize int
	Counts   page.Counts
	Owners   []PageOwner // at most MaxPageOwners, in order of their first page
	Omitted  int         // owners that found no room
}

// PageOwner is one attempt of a hand-off and what it has. No prompt, no token.
type PageOwner struct {
	Key    Key
	Tenant string // slug; "" when the worker does not know it any more
	State  page.State
	Step   string // where the worker's side of the hand-off stands; "" when it is over
	Rows   int    // filled so far: received, or computed here
	Prompt int    // rows that the hand-off brings
	Output int    // tokens made here
	Runs   []page.Run
}

// Bounds of a Pages message: a worker lists no more, and says how many it left out.
const (
	MaxPageOwners = 512
	MaxPageRuns   = 16384 // of all owners
)

// Add lists one more owner, unless the message is full.
func (p *Pages) Add(o PageOwner) {
	runs := len(o.Runs)
	for _, other := range p.Owners {
		runs += len(other.Runs)
	}
	if len(p.Owners) >= MaxPageOwners || runs > MaxPageRuns {
		p.Omitted++
		return
	}
	p.Owners = append(p.Owners, o)
}
