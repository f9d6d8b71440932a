package bus

import (
	"fmt"
	"strings"
	"time"
)

// Limits of what is stored. They are the same on every bus, so that a cluster can be moved.
const (
	KVWindow       = 16                  // messages of one hand-off that wait in a KV stream; one more is ErrFull
	KVBytes        = 256 << 20           // bytes of one KV stream
	JobBytes       = 64 << 20            // bytes of QUIRE_JOBS
	ControlBytes   = 64 << 20            // bytes of QUIRE_CTL
	JournalBytes   = 1 << 30             // bytes of QUIRE_JOURNAL
	JournalAge     = 30 * 24 * time.Hour // age at which a record leaves QUIRE_JOURNAL
	TapeBytes      = 1 << 30             // bytes of QUIRE_TAPE
	TapeAge        = 7 * 24 * time.Hour  // age at which recorded content leaves QUIRE_TAPE
	TransientAge   = time.Minute         // age at which a job, a control message or a frame is dropped
	QueueMessages  = 65536               // messages of QUIRE_JOBS, QUIRE_CTL and of a KV stream
	MaxConsumers   = 1024                // of QUIRE_JOBS and QUIRE_CTL
	InactiveAfter  = time.Minute         // a consumer that nobody pulls from is dropped after this
	MaxPullBytes   = 32 << 20            // bytes that one pull may bring, whatever the consumer asks for
	DefaultPayload = 8 << 20             // max_payload of our server
	MinPayload     = 64 << 10            // smallest max_payload with which Quire starts: one frame's header and some rows
	DefaultPending = 64                  // Consumer.MaxPending when 0
)

// DefaultAckWait is Consumer.AckWait when 0.
const DefaultAckWait = 2 * time.Second

// StreamSpec is how a stream is configured. Zero limits mean none.
type StreamSpec struct {
	Name              string
	Subjects          []string
	File              bool // on disk; else in memory, and gone after a restart of the server
	WorkQueue         bool // an acknowledged message is deleted; consumers' filters must not overlap
	MaxAge            time.Duration
	MaxBytes          int64
	MaxMsgs           int64
	MaxMsgsPerSubject int64
	MaxConsumers      int
	Duplicates        time.Duration // window in which message ids are remembered
	DenyDelete        bool
	DenyPurge         bool
}

// JobsStream is QUIRE_JOBS.
func (n Names) JobsStream() string { return n.upper() + "_JOBS" }

// ControlStream is QUIRE_CTL.
func (n Names) ControlStream() string { return n.upper() + "_CTL" }

// JournalStream is QUIRE_JOURNAL.
func (n Names) JournalStream() string { return n.upper() + "_JOURNAL" }

// TapeStream is QUIRE_TAPE: recorded content, opt-in.
func (n Names) TapeStream() string { return n.upper() + "_TAPE" }

// TapeKeys is the bucket of the tape's keys, one for each tenant. TapeKeysStream is the stream behind it.
func (n Names) TapeKeys() string { return n.upper() + "_TAPE_KEYS" }

// TapeKeysStream is the stream behind the bucket.
func (n Names) TapeKeysStream() string { return "KV_" + n.TapeKeys() }

// Tape is where one request of a tenant is recorded.
func (n Names) Tape(tenant, handoff string) string {
	return fmt.Sprintf("%s.tape.%s.%s", n.prefix(), tenant, handoff)
}

// TapePart is where a part of an attempt of a tenant's request is recorded: what decode had of it.
func (n Names) TapePart(tenant, attempt string, number uint32) string {
	return fmt.Sprintf("%s.tape.%s.%s.%d", n.prefix(), tenant, attempt, number)
}

// TapeParts matches all parts of an attempt.
func (n Names) TapeParts(tenant, attempt string) string {
	return fmt.Sprintf("%s.tape.%s.%s.*", n.prefix(), tenant, attempt)
}

// TapeKey is where a tenant's key is kept.
func (n Names) TapeKey(tenant string) string { return "$KV." + n.TapeKeys() + "." + tenant }

// TapeStreams are made where content is recorded, and only there.
func TapeStreams(n Names) []StreamSpec {
	return []StreamSpec{
		{Name: n.TapeStream(), Subjects: []string{n.prefix() + ".tape.>"}, File: true, MaxAge: TapeAge, MaxBytes: TapeBytes, Duplicates: 2 * time.Minute},
		// One key for a subject, ever: a second one is refused, so that everybody seals with the first.
		{Name: n.TapeKeysStream(), Subjects: []string{"$KV." + n.TapeKeys() + ".>"}, File: true, MaxBytes: 16 << 20, MaxMsgsPerSubject: 1, Duplicates: 2 * time.Minute},
	}
}

// EpochBucket is QUIRE_EPOCH.
func (n Names) EpochBucket() string { return n.upper() + "_EPOCH" }

// KVPrefix begins the name of every KV stream.
func (n Names) KVPrefix() string { return n.upper() + "_KV_" }

// KVStream is QUIRE_KV_<decode>_<epoch>.
func (n Names) KVStream(decode string, epoch uint64) string {
	return fmt.Sprintf("%s%s_%d", n.KVPrefix(), decode, epoch)
}

// AllJobs matches the jobs of one model and pool that any worker may take: the filter of the consumer that they share.
func (n Names) AllJobs(model, pool string) string { return n.Job(model, pool, "*") }

// JobsFor matches the jobs that only one worker may take: the filter of its own consumer. It does not overlap AllJobs.
func (n Names) JobsFor(model, pool, worker string) string { return n.JobFor(model, pool, worker, "*") }

// AllControl matches the control messages of one epoch of one process.
func (n Names) AllControl(role, id string, epoch uint64) string {
	return n.Control(role, id, epoch, "*")
}

// AllKV matches what one decode epoch receives.
func (n Names) AllKV(decode string, epoch uint64) string { return n.KV(decode, epoch, "*") }

// AllReplies matches the replies to one router epoch.
func (n Names) AllReplies(router string, epoch uint64) string { return n.Reply(router, epoch, "*") }

// AllHeartbeats matches everyone's heartbeats.
func (n Names) AllHeartbeats() string { return n.prefix() + ".hb.*.*" }

func (n Names) prefix() string {
	if n.Prefix == "" {
		return "quire"
	}
	return n.Prefix
}

func (n Names) upper() string {
	if n.Prefix == "" {
		return "QUIRE"
	}
	return strings.ToUpper(strings.ReplaceAll(n.Prefix, ".", "_"))
}

// SharedStreams are the streams that every cluster has one of.
func SharedStreams(n Names) []StreamSpec {
	queue := func(name, subject string, bytes int64) StreamSpec {
		return StreamSpec{
			Name: name, Subjects: []string{n.prefix() + subject}, WorkQueue: true,
			MaxAge: TransientAge, MaxBytes: bytes, MaxMsgs: QueueMessages, MaxConsumers: MaxConsumers, Duplicates: TransientAge,
		}
	}
	return []StreamSpec{
		queue(n.JobsStream(), ".job.>", JobBytes),
		queue(n.ControlStream(), ".ctl.>", ControlBytes),
		{
			Name: n.JournalStream(), Subjects: []string{n.prefix() + ".journal.>"}, File: true,
			MaxAge: JournalAge, MaxBytes: JournalBytes, Duplicates: 2 * time.Minute, DenyDelete: true, DenyPurge: true,
		},
	}
}

// KVSpec is the KV stream of one decode epoch.
func KVSpec(n Names, decode string, epoch uint64) StreamSpec {
	return StreamSpec{
		Name: n.KVStream(decode, epoch), Subjects: []string{n.AllKV(decode, epoch)}, WorkQueue: true,
		MaxAge: TransientAge, MaxBytes: KVBytes, MaxMsgs: QueueMessages, MaxMsgsPerSubject: KVWindow,
		MaxConsumers: 1, Duplicates: TransientAge,
	}
}

// Matches says whether a subject matches a pattern with the wildcards * (one token) and > (one or more, at the end).
func Matches(pattern, subject string) bool {
	same := 0 // bytes that both begin with: most patterns differ from most subjects within them
	for same < len(pattern) && same < len(subject) && pattern[same] == subject[same] {
		same++
	}
	token := strings.LastIndexByte(pattern[:same], '.') + 1
	pattern, subject = pattern[token:], subject[token:]
	for {
		p, restP, moreP := strings.Cut(pattern, ".")
		s, restS, moreS := strings.Cut(subject, ".")
		if p == ">" {
			return s != ""
		}
		if p != "*" && p != s {
			return false
		}
		if moreP != moreS {
			return false
		}
		if !moreP {
			return true
		}
		pattern, subject = restP, restS
	}
}

// Overlaps says whether some subject matches both patterns.
func Overlaps(a, b string) bool {
	for {
		x, restX, moreX := strings.Cut(a, ".")
		y, restY, moreY := strings.Cut(b, ".")
		if x == ">" || y == ">" {
			return true
		}
		if x != "*" && y != "*" && x != y {
			return false
		}
		if moreX != moreY {
			return false
		}
		if !moreX {
			return true
		}
		a, b = restX, restY
	}
}
