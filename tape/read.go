package tape

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"quire/bus"
	"quire/kvtransfer"
)

// Messages is where sealed takes and parts lie: the stream on a bus, a backup of it, or a bundle.
type Messages interface {
	// Tape calls fn for every message whose subject matches a pattern, in the order in which they were stored.
	Tape(ctx context.Context, pattern string, fn func(subject string, data []byte) error) error
}

// Stream is the tape's stream on a bus, or restored from a backup.
type Stream struct {
	Reader bus.Reader
	Name   string
}

// Tape implements Messages.
func (s Stream) Tape(ctx context.Context, pattern string, fn func(subject string, data []byte) error) error {
	_, err := s.Reader.ReadSubject(ctx, s.Name, pattern, func(m bus.Stored) error { return fn(m.Subject, m.Data) })
	return err
}

// ErrNone says that a request, or what decode had of an attempt, is not on the tape.
var ErrNone = errors.New("not on the tape")

// Of reads the take of a hand-off; the last one where there are several.
func Of(ctx context.Context, from Messages, names bus.Names, k Key, tenant string, id kvtransfer.HandoffID) (Take, error) {
	var data []byte
	if err := from.Tape(ctx, names.Tape(tenant, id.String()), func(_ string, b []byte) error { data = b; return nil }); err != nil {
		return Take{}, err
	}
	if data == nil {
		return Take{}, fmt.Errorf("tape: hand-off %s of tenant %s: %w", id, tenant, ErrNone)
	}
	return Open(k, tenant, id, data)
}

// Bounds of what one attempt may make of a reader's memory.
const (
	maxParts = kvtransfer.CutFrames + 8
	maxBytes = 32 << 30
)

// Attempt is everything that decode had of an attempt.
type Attempt struct {
	Key    kvtransfer.Key
	Tenant string
	At     kvtransfer.Tick // of the claim, by decode's clock
	Head   Head
	Parts  []Part // in order; the head is not among them
	End    *End   // nil when the tape has none: decode died, or the tape was full
}

// Bytes is how much of frames there is.
func (a Attempt) Bytes() int {
	n := 0
	for _, p := range a.Parts {
		n += len(p.Frame)
	}
	return n
}

// AttemptOf reads an attempt. A part that is missing in between is an error that names it.
func AttemptOf(ctx context.Context, from Messages, names bus.Names, k Key, tenant string, key kvtransfer.Key) (Attempt, error) {
	a := Attempt{Key: key, Tenant: tenant}
	total := 0
	var parts []Part
	err := from.Tape(ctx, names.TapeParts(tenant, key.String()), func(subject string, b []byte) error {
		n, err := strconv.ParseUint(subject[strings.LastIndexByte(subject, '.')+1:], 10, 32)
		if err != nil {
			return fmt.Errorf("tape: subject %.80q: %w", subject, err)
		}
		if total += len(b); len(parts) >= maxParts || total > maxBytes {
			return fmt.Errorf("tape: attempt %s: more than %d parts or %d bytes", key, maxParts, int64(maxBytes))
		}
		p, err := OpenPart(k, tenant, key, uint32(n), b)
		parts = append(parts, p)
		return err
	})
	switch {
	case err != nil:
		return a, err
	case len(parts) == 0:
		return a, fmt.Errorf("tape: what decode had of %s of tenant %s: %w", key, tenant, ErrNone)
	}
	slices.SortStableFunc(parts, func(a, b Part) int { return int(a.Number) - int(b.Number) })
	parts = slices.CompactFunc(parts, func(a, b Part) bool { return a.Number == b.Number }) // a publish that was repeated
	for i, p := range parts {
		switch {
		case p.Number != uint32(i):
			return a, fmt.Errorf("tape: attempt %s: part %d is missing: %w", key, i, ErrNone)
		case (p.Head != nil) != (i == 0), a.End != nil:
			return a, fmt.Errorf("tape: attempt %s: part %d is out of place", key, i)
		case i == 0:
			a.At, a.Head = p.At, *p.Head
		case p.End != nil:
			a.End = p.End
		default:
			a.Parts = append(a.Parts, p)
		}
	}
	return a, nil
}
