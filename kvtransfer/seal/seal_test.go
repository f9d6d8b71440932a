package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"strings"
	"testing"

	"quire/kvtransfer"
)

// ring has a key for each of two roles.
type ring map[kvtransfer.Role]ed25519.PrivateKey

type signer ed25519.PrivateKey

func (s signer) Sign(msg []byte) []byte { return ed25519.Sign(ed25519.PrivateKey(s), msg) }

func (r ring) Verify(role kvtransfer.Role, msg, sig []byte) bool {
	k, ok := r[role]
	return ok && ed25519.Verify(k.Public().(ed25519.PublicKey), msg, sig)
}

func newRing() ring {
	a, b := bytes32(1), bytes32(2)
	return ring{kvtransfer.RoleDecode: ed25519.NewKeyFromSeed(a[:]), kvtransfer.RolePrefill: ed25519.NewKeyFromSeed(b[:])}
}

func TestEnvelope(t *testing.T) {
	keys := newRing()
	from := kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 9}
	b := Sign(signer(keys[kvtransfer.RoleDecode]), from, kvtransfer.KindClaimed, []byte("body"))
	e, err := OpenEnvelope(keys, b)
	if err != nil || e.From != from || e.Kind != kvtransfer.KindClaimed || string(e.Body) != "body" {
		t.Fatalf("%+v, %v", e, err)
	}
	for i := range len(b) * 8 {
		bad := bytes.Clone(b)
		bad[i/8] ^= 1 << (i % 8)
		if e, err := OpenEnvelope(keys, bad); err == nil {
			t.Errorf("bit %d: opens to %+v", i, e)
		}
	}
}

func TestEnvelopeOfAnotherKey(t *testing.T) {
	keys := newRing()
	decode := kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1"}
	forged := Sign(signer(keys[kvtransfer.RolePrefill]), decode, kvtransfer.KindClaimed, nil)
	if _, err := OpenEnvelope(keys, forged); err == nil || !strings.HasPrefix(err.Error(), "seal: envelope: kind 6 from decode/d1@0: signature does not verify") {
		t.Errorf("prefill's key, decode's name: %v", err)
	}
	unknown := Sign(signer(keys[kvtransfer.RolePrefill]), kvtransfer.Peer{Role: kvtransfer.RoleRouter}, kvtransfer.KindJob, nil)
	if _, err := OpenEnvelope(keys, unknown); err == nil {
		t.Error("a role without a key opens")
	}
	// A signature over the same bytes for another purpose is none.
	bare := forged[:len(forged)-64]
	bare = append(bytes.Clone(bare), ed25519.Sign(keys[kvtransfer.RoleDecode], bare)...)
	if _, err := OpenEnvelope(keys, bare); err == nil {
		t.Error("a signature without the domain opens")
	}
}

var header = kvtransfer.FrameHeader{
	Key: kvtransfer.Key{ID: kvtransfer.HandoffID{3}, Attempt: 2}, Claim: kvtransfer.ClaimID{4}, Index: 5,
	LayerFrom: 1, LayerTo: 2, RowFrom: 16, RowTo: 32, Hidden: 8,
}

func TestFrame(t *testing.T) {
	plain := bytes.Repeat([]byte("page"), 1000)
	sealed := SealFrame(bytes32(1), bytes32(2), header, plain)
	if len(sealed) != len(plain)+16 || bytes.Contains(sealed, []byte("pagepage")) {
		t.Fatalf("sealed bytes %d of %d", len(sealed), len(plain))
	}
	scratch := make([]byte, 0, len(plain))
	got, err := OpenFrame(bytes32(1), bytes32(2), header, sealed, scratch)
	if err != nil || !bytes.Equal(got, plain) || &got[0] != &scratch[:1][0] {
		t.Errorf("into scratch: %d bytes, %v", len(got), err)
	}
	if got, err := OpenFrame(bytes32(1), bytes32(2), header, sealed, nil); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("into nothing: %d bytes, %v", len(got), err)
	}
	if empty := SealFrame(bytes32(1), bytes32(2), header, nil); len(empty) != 16 {
		t.Errorf("an empty frame is sealed in %d bytes", len(empty))
	}
}

// A frame opens with its own key, for its own reservation, under its own header and with its own bytes, and never otherwise.
func TestFrameIsBound(t *testing.T) {
	sealed := SealFrame(bytes32(1), bytes32(2), header, []byte("page content"))
	refused := func(name string, key, reservation [32]byte, h kvtransfer.FrameHeader, b []byte) {
		t.Helper()
		if got, err := OpenFrame(key, reservation, h, b, nil); err == nil {
			t.Errorf("%s: opens to %q", name, got)
		} else if !strings.HasPrefix(err.Error(), "seal: frame ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("other key", bytes32(9), bytes32(2), header, sealed)
	refused("other reservation", bytes32(1), bytes32(9), header, sealed)
	for name, change := range map[string]func(h *kvtransfer.FrameHeader){
		"hand-off":    func(h *kvtransfer.FrameHeader) { h.Key.ID[15]++ },
		"attempt":     func(h *kvtransfer.FrameHeader) { h.Key.Attempt++ },
		"claim":       func(h *kvtransfer.FrameHeader) { h.Claim[0]++ },
		"index":       func(h *kvtransfer.FrameHeader) { h.Index++ },
		"layer from":  func(h *kvtransfer.FrameHeader) { h.LayerFrom++ },
		"layer to":    func(h *kvtransfer.FrameHeader) { h.LayerTo++ },
		"row from":    func(h *kvtransfer.FrameHeader) { h.RowFrom++ },
		"row to":      func(h *kvtransfer.FrameHeader) { h.RowTo++ },
		"hidden":      func(h *kvtransfer.FrameHeader) { h.Hidden = 0 },
		"rows swap":   func(h *kvtransfer.FrameHeader) { h.RowFrom, h.RowTo = h.RowTo, h.RowFrom },
		"layers rows": func(h *kvtransfer.FrameHeader) { h.LayerTo, h.RowFrom = h.RowFrom, h.LayerTo },
	} {
		h := header
		change(&h)
		refused(name, bytes32(1), bytes32(2), h, sealed)
	}
	for i := range len(sealed) * 8 {
		bad := bytes.Clone(sealed)
		bad[i/8] ^= 1 << (i % 8)
		refused("a flipped bit", bytes32(1), bytes32(2), header, bad)
	}
	for n := range len(sealed) {
		refused("cut", bytes32(1), bytes32(2), header, sealed[:n])
	}
}

func TestReplyIsBound(t *testing.T) {
	h := kvtransfer.ReplyHeader{Key: header.Key, Number: 7, DecodeKey: bytes32(3)}
	sealed := SealReply(bytes32(1), h, []byte("tokens"))
	if got, err := OpenReply(bytes32(1), h, sealed); err != nil || string(got) != "tokens" {
		t.Fatalf("%q, %v", got, err)
	}
	for name, c := range map[string]struct {
		key    [32]byte
		change func(h *kvtransfer.ReplyHeader)
	}{
		"key":        {bytes32(2), func(*kvtransfer.ReplyHeader) {}},
		"hand-off":   {bytes32(1), func(h *kvtransfer.ReplyHeader) { h.Key.ID[0]++ }},
		"attempt":    {bytes32(1), func(h *kvtransfer.ReplyHeader) { h.Key.Attempt++ }},
		"number":     {bytes32(1), func(h *kvtransfer.ReplyHeader) { h.Number++ }},
		"decode key": {bytes32(1), func(h *kvtransfer.ReplyHeader) { h.DecodeKey[0]++ }},
	} {
		other := h
		c.change(&other)
		if got, err := OpenReply(c.key, other, sealed); err == nil || !strings.HasPrefix(err.Error(), "seal: reply ") {
			t.Errorf("other %s: %q, %v", name, got, err)
		}
	}
}

// A nonce is the index in its last four bytes.
func TestNonce(t *testing.T) {
	if got := nonce(0x01020304); !bytes.Equal(got, []byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}) {
		t.Errorf("nonce %x", got)
	}
}

func TestTagAndDigest(t *testing.T) {
	sealed := SealFrame(bytes32(1), bytes32(2), header, []byte("page"))
	tag := Tag(sealed)
	if !bytes.Equal(tag[:], sealed[4:]) {
		t.Errorf("tag %x of %x", tag, sealed)
	}
	if Tag(sealed[:15]) != [16]byte{} || Tag(nil) != [16]byte{} {
		t.Error("too few bytes have a tag")
	}
	other := [16]byte{1}
	if want := sha256.Sum256(append(tag[:], other[:]...)); Digest([][16]byte{tag, other}) != want {
		t.Error("digest is not the SHA-256 over the tags")
	}
	if Digest([][16]byte{tag, other}) == Digest([][16]byte{other, tag}) || Digest(nil) != sha256.Sum256(nil) {
		t.Error("order or emptiness is ignored")
	}
}
