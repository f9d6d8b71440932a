package bus

import (
	"context"
	"time"
)

// Stored is one message as a stream has it.
type Stored struct {
	Msg
	Sequence uint64
	Time     time.Time // of the server, when it was stored
}

// StreamState is what a stream holds. All is zero in an empty one.
type StreamState struct {
	First, Last         uint64 // sequences
	Messages            uint64 // fewer than Last-First+1: some were taken out of the middle
	Bytes               uint64
	FirstTime, LastTime time.Time
}

// Reader reads streams without taking anything from them, and without acknowledging. Connections of bus/jet and backups that it
// opens are Readers.
type Reader interface {
	// Read calls fn for every message of a stream from a sequence on, in order, up to what was the last one when it began. An
	// error from fn ends it and is returned. ErrNoStream when the stream is not there.
	Read(ctx context.Context, stream string, from uint64, fn func(Stored) error) (StreamState, error)
	// ReadSubject is Read from the first message on, of the messages alone whose subject matches a pattern.
	ReadSubject(ctx context.Context, stream, subject string, fn func(Stored) error) (StreamState, error)
}

// Taper makes the streams of the tape. Connections of bus/jet are Tapers.
type Taper interface {
	EnsureTape(ctx context.Context) error
}
