package seal

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"quire/kvtransfer"
)

// bytes32 gives 32 bytes that begin with n.
func bytes32(n byte) (b [32]byte) {
	for i := range b {
		b[i] = n + byte(i)
	}
	return b
}

func key(t *testing.T, digits string) [32]byte {
	t.Helper()
	b, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return [32]byte(b)
}

// The iteration of RFC 7748, section 5.2: the base point, taken once by itself.
func TestPublicKey(t *testing.T) {
	want := key(t, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079")
	if got := PublicKey([32]byte{9}); got != want {
		t.Errorf("got %x, want %x", got, want)
	}
}

// hkdf256 is RFC 5869 for one block of output, written out.
func hkdf256(secret, salt []byte, info string) []byte {
	extract := hmac.New(sha256.New, salt)
	extract.Write(secret)
	expand := hmac.New(sha256.New, extract.Sum(nil))
	expand.Write([]byte(info))
	expand.Write([]byte{1})
	return expand.Sum(nil)
}

func TestKeysOfBothSides(t *testing.T) {
	decode, other := bytes32(1), bytes32(101)
	reservation := HashReservation([]byte("a reservation"))
	claim := kvtransfer.ClaimID{7, 7}
	a, err := FrameKey(decode, PublicKey(other), reservation, claim)
	if err != nil {
		t.Fatal(err)
	}
	b, err := FrameKey(other, PublicKey(decode), reservation, claim)
	if err != nil || a != b {
		t.Errorf("frame keys %x and %x, %v", a, b, err)
	}
	r, err := ReplyKey(decode, PublicKey(other), reservation)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := ReplyKey(other, PublicKey(decode), reservation); err != nil || s != r {
		t.Errorf("reply keys %x and %x, %v", r, s, err)
	}

	priv, _ := ecdh.X25519().NewPrivateKey(decode[:])
	pub := PublicKey(other)
	public, _ := ecdh.X25519().NewPublicKey(pub[:])
	secret, err := priv.ECDH(public)
	if err != nil {
		t.Fatal(err)
	}
	if want := hkdf256(secret, reservation[:], "quire frame 1\x00"+string(claim[:])); string(want) != string(a[:]) {
		t.Errorf("frame key %x, by hand %x", a, want)
	}
	if want := hkdf256(secret, reservation[:], "quire reply 1\x00"); string(want) != string(r[:]) {
		t.Errorf("reply key %x, by hand %x", r, want)
	}
}

// Another claim, reservation or peer has another key; frames and replies too.
func TestKeysDiffer(t *testing.T) {
	seen := map[[32]byte]string{}
	add := func(name string, k [32]byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[k]; ok {
			t.Errorf("%s and %s have one key", name, other)
		}
		seen[k] = name
	}
	priv, pub := bytes32(1), PublicKey(bytes32(101))
	for name, c := range map[string]struct {
		priv, pub, reservation [32]byte
		claim                  kvtransfer.ClaimID
	}{
		"base":              {priv, pub, bytes32(5), kvtransfer.ClaimID{1}},
		"other claim":       {priv, pub, bytes32(5), kvtransfer.ClaimID{2}},
		"other reservation": {priv, pub, bytes32(6), kvtransfer.ClaimID{1}},
		"other decode":      {bytes32(2), pub, bytes32(5), kvtransfer.ClaimID{1}},
		"other prefill":     {priv, PublicKey(bytes32(102)), bytes32(5), kvtransfer.ClaimID{1}},
	} {
		k, err := FrameKey(c.priv, c.pub, c.reservation, c.claim)
		add("frame "+name, k, err)
		if name != "other claim" {
			k, err = ReplyKey(c.priv, c.pub, c.reservation)
			add("reply "+name, k, err)
		}
	}
}

// Public keys whose secret everybody knows are refused.
func TestKeysWithoutSecret(t *testing.T) {
	for _, pub := range [][32]byte{{}, {1},
		key(t, "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
		key(t, "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")} {
		if _, err := FrameKey(bytes32(1), pub, bytes32(2), kvtransfer.ClaimID{}); err == nil || !strings.HasPrefix(err.Error(), "seal: frame key: claim 0000") {
			t.Errorf("frame key with %x: %v", pub, err)
		}
		if _, err := ReplyKey(bytes32(1), pub, bytes32(2)); err == nil || !strings.HasPrefix(err.Error(), "seal: reply key: ") {
			t.Errorf("reply key with %x: %v", pub, err)
		}
	}
}

func TestPromptDigest(t *testing.T) {
	base := PromptDigest(bytes32(1), "acme", []int32{1, 2, 3})
	secret := bytes32(1)
	mac := hmac.New(sha256.New, secret[:])
	mac.Write([]byte("quire prompt 1\x00\x04\x00\x00\x00\x00\x00\x00\x00acme\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00"))
	if string(mac.Sum(nil)) != string(base[:]) {
		t.Errorf("digest %x, by hand %x", base, mac.Sum(nil))
	}
	for name, other := range map[string][32]byte{
		"key":    PromptDigest(bytes32(2), "acme", []int32{1, 2, 3}),
		"tenant": PromptDigest(bytes32(1), "acm", []int32{1, 2, 3}),
		"order":  PromptDigest(bytes32(1), "acme", []int32{2, 1, 3}),
		"length": PromptDigest(bytes32(1), "acme", []int32{1, 2}),
		"empty":  PromptDigest(bytes32(1), "acme", nil),
	} {
		if other == base {
			t.Errorf("another %s has the same digest", name)
		}
	}
}

// A pair gives what its private bytes give, each time.
func TestKeyPair(t *testing.T) {
	pair, pub := NewKeyPair(bytes32(1)), PublicKey(bytes32(101))
	if got, want := pair.Public(), PublicKey(bytes32(1)); got != want {
		t.Errorf("public key %x, want %x", got, want)
	}
	for range 2 {
		frame, err := PairFrameKey(pair, pub, bytes32(5), kvtransfer.ClaimID{1})
		if want, _ := FrameKey(bytes32(1), pub, bytes32(5), kvtransfer.ClaimID{1}); err != nil || frame != want {
			t.Errorf("frame key %x, want %x, %v", frame, want, err)
		}
		reply, err := PairReplyKey(pair, pub, bytes32(5))
		if want, _ := ReplyKey(bytes32(1), pub, bytes32(5)); err != nil || reply != want {
			t.Errorf("reply key %x, want %x, %v", reply, want, err)
		}
	}
	if secret, err := pair.Secret([32]byte{}); err == nil {
		t.Errorf("a key without a secret gave %x", secret)
	}
}

// CheckPublic refuses what key agreement refuses, and nothing else.
func TestCheckPublic(t *testing.T) {
	pair := NewKeyPair(bytes32(1))
	agree := func(pub [32]byte) {
		t.Helper()
		_, err := pair.Secret(pub)
		if checked := CheckPublic(pub); (checked == nil) != (err == nil) {
			t.Errorf("%x: checked %v, agreement %v", pub, checked, err)
		}
	}
	for _, pub := range secretless {
		if CheckPublic(pub) == nil {
			t.Errorf("%x passes", pub)
		}
		agree(pub)
		for i := range pub {
			for bit := range 8 {
				near := pub
				near[i] ^= 1 << bit
				agree(near)
			}
		}
	}
	for n := range byte(50) {
		agree(bytes32(n))
	}
}
