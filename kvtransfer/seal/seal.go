// Package seal signs what must be attributable and encrypts what must stay between two processes. It makes no randomness and
// no keys: both come from outside.
//
// Envelopes are signed with Ed25519, one key per role. Frames and replies are encrypted with AES-256-GCM under keys that
// HKDF-SHA256 makes of an X25519 secret, the hash of the reservation and, for frames, the claim: neither the bus nor the
// router can read a frame, and a frame opens in no other place than the one it was made for.
package seal

import (
	"crypto/sha256"
	"fmt"

	"quire/kvtransfer"
	"quire/kvtransfer/wire"
)

// Signer holds the private key of one role.
type Signer interface {
	// Sign gives the 64-byte Ed25519 signature of msg.
	Sign(msg []byte) []byte
}

// Verifier knows the public key of each role.
type Verifier interface {
	// Verify says whether sig is the signature of msg by the role's key; false for a role without one.
	Verify(role kvtransfer.Role, msg, sig []byte) bool
}

// signDomain stands before everything that is signed, so that a signature made for another purpose is none here. Its first
// byte is no text, so no server can have it signed as the nonce of a login with the same key.
const signDomain = "\xffquire envelope 1\x00"

// Sign gives the bytes of a signed envelope around the body.
func Sign(s Signer, from kvtransfer.Peer, kind kvtransfer.Kind, body []byte) []byte {
	b := wire.Unsigned(kind, from, body)
	return append(b, s.Sign(signed(b))...)
}

// OpenEnvelope splits an envelope and verifies its signature against the key of the role that it names. The error says what
// is wrong with it; nothing in it may be used then.
func OpenEnvelope(v Verifier, b []byte) (wire.Envelope, error) {
	e, err := wire.Open(b)
	if err != nil {
		return wire.Envelope{}, err
	}
	if !v.Verify(e.From.Role, signed(e.Signed), e.Sig) {
		return wire.Envelope{}, fmt.Errorf("seal: envelope: kind %d from %s: signature does not verify, %d bytes in all", e.Kind, e.From, len(b))
	}
	return e, nil
}

func signed(b []byte) []byte {
	msg := make([]byte, 0, len(signDomain)+len(b))
	msg = append(msg, signDomain...)
	return append(msg, b...)
}

// HashReservation is the SHA-256 of a reservation's encoded body.
func HashReservation(body []byte) [32]byte { return sha256.Sum256(body) }
