// Package bus says what the services need of a message bus. bus/jet puts NATS and JetStream behind it; tests put a fake there.
//
// Every method may be called from any goroutine. Nothing here decides anything: retries, leases and dedupe by content are the
// callers'.
package bus

import (
	"context"
	"errors"
	"time"
)

// Errors that callers tell apart with errors.Is. An implementation wraps them with the numbers.
var (
	ErrNoResponders = errors.New("bus: no responders")
	ErrTimeout      = errors.New("bus: timeout")
	ErrFull         = errors.New("bus: stream or subject window is full") // back off, send the same bytes again
	ErrDuplicate    = errors.New("bus: duplicate message id")             // stored before; with other content this is a bug
	ErrTooLarge     = errors.New("bus: message exceeds max_payload")
	ErrNoStream     = errors.New("bus: no such stream")
	ErrClosed       = errors.New("bus: closed")
	ErrDown         = errors.New("bus: not connected") // at once while the server is away; nothing is buffered
)

// Msg is one message as received.
type Msg struct {
	Subject string
	Reply   string // where to answer; "" when no answer is wanted
	Header  map[string][]string
	Data    []byte // the receiver's own; not reused
}

// Delivery is one message of a stream. Exactly one of Ack, Term or Nak is called.
type Delivery struct {
	Msg
	Sequence  uint64 // in the stream
	Delivered int    // 1 the first time
	Ack       func() error
	Term      func() error // refused for good: never deliver again
	Nak       func(delay time.Duration) error
}

// Sub is a running subscription or consumer.
type Sub interface {
	// Drain stops new deliveries, waits for a started callback to end and gives back what was not delivered. A message with
	// MaxDeliver 1 that the server has already handed out would be lost that way, so the callback gets it before Drain returns.
	// Drain must not be called from the callback itself. A second call does nothing.
	Drain() error
}

// Consumer says how to read a stream.
type Consumer struct {
	Stream string
	// Name is a slug, unique per process where the filter is the process's own. Workers that share a filter (jobs of one model
	// and pool) share the name and all other values too: each message goes to one of them. The consumer is made on start, and
	// again on reconnect and when pulls miss heartbeats; a new one sees what is still stored as delivered for the first time.
	Name       string
	Subjects   []string      // filters; must not overlap another consumer's of the same stream
	AckWait    time.Duration // 0 = DefaultAckWait; from the pull, not from the callback
	MaxDeliver int           // 0 = no limit; beyond it a message stays stored until deleted
	MaxPending int           // messages not yet acknowledged; 0 = DefaultPending
	MaxBytes   int           // bytes a pull may bring: MaxPullBytes at most, and when 0
	// Want, when not nil: messages are fetched one by one, each for one value received from Want (no prefetch). Closing it ends
	// the fetching. The next value is received only after the callback for the last one has returned.
	Want <-chan struct{}
}

// Publish options of Enqueue.
type Enqueue struct {
	Subject string
	ID      string // Nats-Msg-Id, "" for none
	Data    []byte // copied: the caller's again when Enqueue returns
	Header  map[string][]string
	Expect  string // stream name that must take it, "" for any
}

// State is what the connection is doing.
type State uint8

// States of a connection.
const (
	Down State = iota
	Up
	Closed
)

// Bus is a connection.
type Bus interface {
	// Publish sends on core NATS: at most once, no acknowledgement.
	Publish(subject string, header map[string][]string, data []byte) error
	// Request waits for one answer. ErrNoResponders comes at once where nobody listens. Headers come with ctx: WithHeader.
	Request(ctx context.Context, subject string, data []byte) (Msg, error)
	// Subscribe calls fn for each message, one at a time per subscription; queue "" means none.
	Subscribe(subject, queue string, fn func(Msg)) (Sub, error)
	// Enqueue publishes to a stream and waits for its acknowledgement: ErrFull, ErrDuplicate, ErrNoStream, ErrTooLarge, ErrTimeout.
	Enqueue(ctx context.Context, m Enqueue) (sequence uint64, err error)
	// Consume reads a stream until Drain; fn is called from one goroutine. ctx bounds the set-up alone. ErrNoStream when the
	// stream is not there; later losses of stream or server are mended inside.
	Consume(ctx context.Context, c Consumer, fn func(Delivery)) (Sub, error)
	// Streams makes and deletes streams and messages.
	Streams() Streams
	// Watch calls fn on each change of state, one call at a time; first, before Watch returns, with the present one.
	Watch(fn func(State, error)) (cancel func())
	// Limits tells what the server announced.
	Limits() Limits
	// Close drains and closes.
	Close() error
}

// Limits of the connected server.
type Limits struct {
	MaxPayload int
	Server     string // version
	URL        string // without credentials
}

// Streams manages what is stored.
type Streams interface {
	// EnsureShared makes QUIRE_JOBS, QUIRE_CTL, QUIRE_JOURNAL and the QUIRE_EPOCH bucket, or says how an existing one differs.
	// Whoever called it makes them again when the server comes back without them; likewise EnsureKV.
	EnsureShared(ctx context.Context) error
	// EnsureKV makes the KV stream of one decode epoch, empty.
	EnsureKV(ctx context.Context, decode string, epoch uint64) error
	// Delete removes a stream (a dead epoch's KV stream).
	Delete(ctx context.Context, stream string) error
	// DeleteMessage removes one message by sequence (a job that nobody claimed).
	DeleteMessage(ctx context.Context, stream string, sequence uint64) error
	// Purge removes the messages of one subject.
	Purge(ctx context.Context, stream, subject string) error
	// Names lists streams whose name begins with prefix.
	Names(ctx context.Context, prefix string) ([]string, error)
	// NextEpoch takes the next epoch of <role>.<id>: above 0 and above every earlier one. ErrNoStream without the bucket.
	NextEpoch(ctx context.Context, role, id string) (uint64, error)
	// WatchEpoch calls fn with the present epoch and with each later one; the caller compares.
	WatchEpoch(ctx context.Context, role, id string, fn func(epoch uint64)) (cancel func(), err error)
}
