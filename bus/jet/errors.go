package jet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"quire/bus"
)

// JetStream's error codes that have no name in nats.go.
const (
	codeInsufficient    = 10023 // insufficient resources
	codeMemory          = 10028 // insufficient memory
	codeStorage         = 10047 // insufficient storage
	codeStreamCreate    = 10049 // the store of a stream could not be made
	codeExpectedStream  = 10060 // expected stream does not match
	codeStoreFailed     = 10077 // a limit of the stream, or another failure to store
	codeTooManyRequests = 10167
	codeNoPeers         = 10005 // no suitable peers for placement
	codeNotClustered    = 10074 // replicas > 1 not supported in non-clustered mode
	codeUnavailable     = 10008 // JetStream has no leader just now
)

// wrap says what was tried and, where it is one that callers tell apart, which error of package bus it is.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	kind := classify(err)
	if kind == nil {
		return fmt.Errorf("bus: %s: %w", what, err)
	}
	return fmt.Errorf("bus: %s: %w (%w)", what, kind, err)
}

func classify(err error) error {
	for _, row := range []struct {
		kind error
		is   []error
	}{
		{bus.ErrNoResponders, []error{nats.ErrNoResponders}},
		{bus.ErrNoStream, []error{jetstream.ErrNoStreamResponse, jetstream.ErrStreamNotFound, jetstream.ErrBucketNotFound}},
		{bus.ErrTimeout, []error{nats.ErrTimeout, context.DeadlineExceeded}},
		{bus.ErrTooLarge, []error{nats.ErrMaxPayload, jetstream.ErrStreamMessageExceedsMaximum}},
		{bus.ErrClosed, []error{nats.ErrConnectionClosed, nats.ErrConnectionDraining, jetstream.ErrConnectionClosed}},
		{bus.ErrDown, []error{nats.ErrReconnectBufExceeded, nats.ErrConnectionReconnecting, nats.ErrDisconnected, nats.ErrNoServers, nats.ErrStaleConnection}},
	} {
		for _, e := range row.is {
			if errors.Is(err, e) {
				return row.kind
			}
		}
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return nil
	}
	switch api.ErrorCode {
	case codeInsufficient, codeMemory, codeStorage, codeTooManyRequests:
		return bus.ErrFull
	case codeStoreFailed:
		if strings.Contains(api.Description, "maximum") || strings.Contains(api.Description, "exceeded") {
			return bus.ErrFull
		}
	case codeExpectedStream:
		return bus.ErrNoStream
	}
	return nil
}
