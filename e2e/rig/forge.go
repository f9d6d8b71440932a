package rig

import (
	"quire/bus"
	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// Forge changes a heartbeat on its way out.
type Forge func(*kvtransfer.Heartbeat)

// forger is a bus on which a worker's own heartbeats are not what the worker wrote.
type forger struct {
	bus.Bus
	ring   *keys.Ring
	signer seal.Signer
	forge  Forge
}

func newForger(b bus.Bus, ring *keys.Ring, forge Forge) (*forger, error) {
	s, err := ring.Signer(kvtransfer.RolePrefill)
	return &forger{b, ring, s, forge}, err
}

// Publish implements bus.Bus.
func (f *forger) Publish(subject string, header map[string][]string, data []byte) error {
	e, err := seal.OpenEnvelope(f.ring, data)
	if err == nil && e.Kind == kvtransfer.KindHeartbeat {
		var hb kvtransfer.Heartbeat
		if hb, err = wire.Decode[kvtransfer.Heartbeat](e.Body); err != nil {
			return err
		}
		f.forge(&hb)
		body, err := wire.Encode(&hb)
		if err != nil {
			return err
		}
		data = seal.Sign(f.signer, e.From, e.Kind, body)
	}
	return f.Bus.Publish(subject, header, data)
}
