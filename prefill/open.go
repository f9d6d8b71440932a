package prefill

import (
	"fmt"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// How bytes from the bus become events: signatures are verified here, before the loop hears of anything.

// OpenJob verifies and reads a job: the router's signature on the job and decode's on the reservation inside.
func OpenJob(v seal.Verifier, data []byte) (Job, error) {
	_, job, err := open[kvtransfer.Job](v, data, kvtransfer.KindJob)
	if err != nil {
		return Job{}, fmt.Errorf("prefill: job: %w", err)
	}
	e, res, err := open[kvtransfer.Reservation](v, job.Reservation, kvtransfer.KindReservation)
	if err != nil {
		return Job{}, fmt.Errorf("prefill: reservation: %w", err)
	}
	if e.From != res.Decode {
		return Job{}, fmt.Errorf("prefill: reservation: of %s, signed by %s", res.Decode, e.From)
	}
	return Job{Reservation: res, Hash: seal.HashReservation(e.Body), Tokens: job.Tokens}, nil
}

// OpenControl verifies and reads a control message from decode: Claimed, Gone or Cancel.
func OpenControl(v seal.Verifier, data []byte) (Event, error) {
	e, err := seal.OpenEnvelope(v, data)
	if err != nil {
		return nil, fmt.Errorf("prefill: control: %w", err)
	}
	if e.From.Role != kvtransfer.RoleDecode {
		return nil, fmt.Errorf("prefill: control: kind %d from %s", e.Kind, e.From)
	}
	switch e.Kind {
	case kvtransfer.KindClaimed:
		m, err := wire.Decode[kvtransfer.Claimed](e.Body)
		return Claimed{From: e.From, Msg: m}, err
	case kvtransfer.KindGone:
		m, err := wire.Decode[kvtransfer.Gone](e.Body)
		return Gone{From: e.From, Msg: m}, err
	case kvtransfer.KindCancel:
		m, err := wire.Decode[kvtransfer.Cancel](e.Body)
		return Cancel{From: e.From, Msg: m}, err
	}
	return nil, fmt.Errorf("prefill: control: kind %d", e.Kind)
}

// OpenHeartbeat verifies and reads a decode's heartbeat.
func OpenHeartbeat(v seal.Verifier, data []byte) (DecodeHeartbeat, error) {
	e, hb, err := open[kvtransfer.Heartbeat](v, data, kvtransfer.KindHeartbeat)
	if err != nil {
		return DecodeHeartbeat{}, fmt.Errorf("prefill: heartbeat: %w", err)
	}
	if e.From != hb.Peer || e.From.Role != kvtransfer.RoleDecode {
		return DecodeHeartbeat{}, fmt.Errorf("prefill: heartbeat: of %s, signed by %s", hb.Peer, e.From)
	}
	return DecodeHeartbeat{From: hb.Peer, Frames: hb.Frames}, nil
}

// open verifies an envelope of one kind and decodes its body.
func open[T any](v seal.Verifier, data []byte, kind kvtransfer.Kind) (wire.Envelope, T, error) {
	var none T
	e, err := seal.OpenEnvelope(v, data)
	if err != nil {
		return e, none, err
	}
	if e.Kind != kind {
		return e, none, fmt.Errorf("kind %d, want %d", e.Kind, kind)
	}
	m, err := wire.Decode[T](e.Body)
	return e, m, err
}

// SealFrame does what SealAndSend asks for, after the rows were read: plain is their bytes as the engine gives them. It returns
// the stored bytes and the tag to report. The same arguments give the same bytes.
func SealFrame(fx SealAndSend, plain []byte) (data []byte, tag [16]byte) {
	start := wire.StartFrame(make([]byte, 0, len(plain)+4*len(fx.Hidden)+frameRoom), fx.Header)
	return sealFrameIn(fx, append(start, plain...), len(start))
}

// frameRoom is more than what a message holds beside rows and hidden vector: the header and the tag.
const frameRoom = 256

// sealFrameIn is SealFrame where the rows lie: behind the first at bytes of the message, which are wire.StartFrame's.
func sealFrameIn(fx SealAndSend, message []byte, at int) (data []byte, tag [16]byte) {
	message = seal.SealFrameIn(fx.Key, fx.Hash, fx.Header, appendHidden(message, fx.Hidden), at)
	return message, seal.Tag(message)
}
