package decode

import (
	"encoding/binary"
	"fmt"
	"math"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// SplitHidden takes a frame's opened bytes apart: the rows, and the vector that its header says follows them. A header that
// asks for more than there is leaves the vector out, and the machine finds the lengths wrong.
func SplitHidden(h kvtransfer.FrameHeader, plain []byte) (kvtransfer.Opening, []byte) {
	o := kvtransfer.Opening{OK: true, Bytes: len(plain)}
	if h.Hidden <= 0 || h.Hidden > len(plain)/4 {
		return o, plain
	}
	rows := plain[:len(plain)-4*h.Hidden]
	o.Hidden = make([]float32, h.Hidden)
	for i := range o.Hidden {
		o.Hidden[i] = math.Float32frombits(binary.LittleEndian.Uint32(plain[len(rows)+4*i:]))
	}
	return o, rows
}

// OpenSealed does what OpenFrame asks for, in scratch.
func OpenSealed(e OpenFrame) FrameOpened { return openSealed(e, nil) }

// openSealed opens into scratch's memory, which grows if needed; Plain lies there then.
func openSealed(e OpenFrame, scratch []byte) FrameOpened {
	ev := FrameOpened{Delivery: e.Delivery, Header: e.Header, Tag: e.Tag, Hash: e.Hash}
	if plain, err := seal.OpenFrame(e.FrameKey, e.Hash, e.Header, e.Sealed, scratch); err == nil {
		ev.Opening, ev.Plain = SplitHidden(e.Header, plain)
	}
	return ev
}

// How bytes from the bus become events: signatures are verified here, before the loop hears of anything.

// OpenReserve verifies and reads a router's request for pages; ReserveAsked.ID is the caller's to set.
func OpenReserve(v seal.Verifier, data []byte) (Event, error) {
	e, m, err := open[kvtransfer.Reserve](v, data, kvtransfer.KindReserve)
	return ReserveAsked{From: e.From, M: m}, err
}

// OpenResend verifies and reads a router's request for replies; ResendAsked.ID is the caller's to set.
func OpenResend(v seal.Verifier, data []byte) (Event, error) {
	e, m, err := open[kvtransfer.Resend](v, data, kvtransfer.KindResend)
	return ResendAsked{From: e.From, M: m}, err
}

// OpenHeartbeat verifies and reads a router's heartbeat.
func OpenHeartbeat(v seal.Verifier, data []byte) (Event, error) {
	e, m, err := open[kvtransfer.Heartbeat](v, data, kvtransfer.KindHeartbeat)
	if err == nil && (e.From != m.Peer || e.From.Role != kvtransfer.RoleRouter) {
		err = fmt.Errorf("decode: heartbeat: of %s, signed by %s", m.Peer, e.From)
	}
	return RouterAlive{Peer: e.From}, err
}

// OpenControl reads a Claim, Progress or Abort of prefill, or a Cancel of a router.
func OpenControl(v seal.Verifier, data []byte) (Event, error) {
	e, err := seal.OpenEnvelope(v, data)
	if err != nil {
		return nil, err
	}
	switch {
	case e.Kind == kvtransfer.KindClaim:
		m, err := wire.Decode[kvtransfer.Claim](e.Body)
		return ClaimCame{From: e.From, M: m}, err
	case e.Kind == kvtransfer.KindProgress:
		m, err := wire.Decode[kvtransfer.Progress](e.Body)
		return ProgressCame{From: e.From, M: m}, err
	case e.Kind == kvtransfer.KindAbort:
		m, err := wire.Decode[kvtransfer.Abort](e.Body)
		return AbortCame{From: e.From, M: m}, err
	case e.Kind == kvtransfer.KindCancel && e.From.Role == kvtransfer.RoleRouter:
		m, err := wire.Decode[kvtransfer.Cancel](e.Body)
		return CancelCame{From: e.From, M: m}, err
	}
	return nil, fmt.Errorf("decode: control: kind %d from %s", e.Kind, e.From)
}

// OpenKV reads what prefill put into the KV stream: a manifest, which is signed, or a frame, which is sealed.
func OpenKV(v seal.Verifier, data []byte) (Event, error) {
	if f, err := wire.DecodeFrame(data); err == nil {
		return FrameCame{Header: f.Header, Tag: seal.Tag(f.Sealed), Sealed: f.Sealed}, nil
	}
	e, m, err := open[kvtransfer.Manifest](v, data, kvtransfer.KindManifest)
	return ManifestCame{From: e.From, M: m}, err
}

// open verifies an envelope of one kind and decodes its body.
func open[T any](v seal.Verifier, data []byte, kind kvtransfer.Kind) (wire.Envelope, T, error) {
	var none T
	e, err := seal.OpenEnvelope(v, data)
	if err != nil {
		return e, none, err
	}
	if e.Kind != kind {
		return e, none, fmt.Errorf("decode: message: kind %d, want %d", e.Kind, kind)
	}
	m, err := wire.Decode[T](e.Body)
	return e, m, err
}
