package wire

import (
	"encoding/binary"
	"fmt"

	"quire/kvtransfer"
)

// Envelope is a signed message, split but not verified: seal.OpenEnvelope does that.
type Envelope struct {
	Kind   kvtransfer.Kind
	From   kvtransfer.Peer
	Body   []byte // for Decode; shares the envelope's memory
	Sig    []byte // [SigSize]; shares the envelope's memory
	Signed []byte // what was signed: all bytes before Sig
}

// senders says which roles may sign which kind. Frames and replies travel sealed, never in an envelope.
var senders = map[kvtransfer.Kind][]kvtransfer.Role{
	kvtransfer.KindReserve:     {kvtransfer.RoleRouter},
	kvtransfer.KindReservation: {kvtransfer.RoleDecode},
	kvtransfer.KindRefused:     {kvtransfer.RoleDecode},
	kvtransfer.KindJob:         {kvtransfer.RoleRouter},
	kvtransfer.KindClaim:       {kvtransfer.RolePrefill},
	kvtransfer.KindClaimed:     {kvtransfer.RoleDecode},
	kvtransfer.KindGone:        {kvtransfer.RoleDecode},
	kvtransfer.KindProgress:    {kvtransfer.RolePrefill},
	kvtransfer.KindAbort:       {kvtransfer.RolePrefill},
	kvtransfer.KindCancel:      {kvtransfer.RoleDecode, kvtransfer.RoleRouter},
	kvtransfer.KindManifest:    {kvtransfer.RolePrefill},
	kvtransfer.KindResend:      {kvtransfer.RoleRouter},
	kvtransfer.KindResent:      {kvtransfer.RoleDecode},
	kvtransfer.KindPagesAsk:    {kvtransfer.RoleRouter},
	kvtransfer.KindPages:       {kvtransfer.RolePrefill, kvtransfer.RoleDecode},
	kvtransfer.KindHeartbeat:   {kvtransfer.RoleBus, kvtransfer.RoleRouter, kvtransfer.RolePrefill, kvtransfer.RoleDecode},
}

// MaySend says whether a role may sign messages of a kind.
func MaySend(role kvtransfer.Role, kind kvtransfer.Kind) bool {
	for _, r := range senders[kind] {
		if r == role {
			return true
		}
	}
	return false
}

// Unsigned gives the bytes of an envelope up to its signature: what is to be signed. A sender that breaks a limit is refused
// by whoever opens it.
func Unsigned(kind kvtransfer.Kind, from kvtransfer.Peer, body []byte) []byte {
	sender, _ := write("envelope", func(c *codec) { peer(c, &from) })
	b := make([]byte, 0, 2+4+len(sender)+4+len(body)+SigSize)
	b = append(b, Version, byte(kind))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(sender)))
	b = append(b, sender...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

// Open splits an envelope, checks its lengths and whether its sender's role may send its kind. It does not verify the
// signature.
func Open(b []byte) (Envelope, error) {
	if len(b) < 2 || len(b) > MaxMessage {
		return Envelope{}, fmt.Errorf("wire: envelope: length %d, limit %d", len(b), MaxMessage)
	}
	if b[0] != Version {
		return Envelope{}, fmt.Errorf("wire: envelope: version %d, want %d", b[0], Version)
	}
	e := Envelope{Kind: kvtransfer.Kind(b[1])}
	sender, rest, err := cut("envelope: sender", b[2:], MaxHeader)
	if err != nil {
		return Envelope{}, err
	}
	if e.Body, rest, err = cut("envelope: body", rest, MaxMessage); err != nil {
		return Envelope{}, err
	}
	if len(rest) != SigSize {
		return Envelope{}, fmt.Errorf("wire: envelope: signature: length %d, want %d", len(rest), SigSize)
	}
	if err := read("envelope", sender, func(c *codec) { peer(c, &e.From) }); err != nil {
		return Envelope{}, err
	}
	if !MaySend(e.From.Role, e.Kind) {
		return Envelope{}, fmt.Errorf("wire: envelope: kind %d from role %q", e.Kind, e.From.Role)
	}
	e.Sig, e.Signed = rest, b[:len(b)-SigSize]
	return e, nil
}

// cut takes a run of bytes behind its length off the front of b.
func cut(what string, b []byte, limit int) (head, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, fmt.Errorf("wire: %s: length of 4 bytes, %d left", what, len(b))
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(limit) || uint64(n) > uint64(len(b)-4) {
		return nil, nil, fmt.Errorf("wire: %s: length %d, limit %d, %d left", what, n, limit, len(b)-4)
	}
	return b[4 : 4+n : 4+n], b[4+n:], nil
}
