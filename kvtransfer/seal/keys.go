package seal

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"quire/kvtransfer"
)

// KeyPair is one side of a key agreement, made for one attempt. Its methods give the same each time.
type KeyPair interface {
	// Public is the half that the other side is told.
	Public() [32]byte
	// Secret is what this side and the holder of the other public key alone can work out. The error says that the other key
	// is one of those that give no secret.
	Secret(other [32]byte) ([]byte, error)
}

// x25519 is the pair that processes use. The standard library works the public half out when the private one is made.
type x25519 struct{ private *ecdh.PrivateKey }

// NewKeyPair is the X25519 key pair (RFC 7748) of 32 random bytes.
func NewKeyPair(seed [32]byte) KeyPair {
	k, err := ecdh.X25519().NewPrivateKey(seed[:])
	if err != nil { // any 32 bytes are a private key
		panic("seal: x25519: " + err.Error())
	}
	return x25519{k}
}

// Public implements KeyPair.
func (p x25519) Public() [32]byte { return [32]byte(p.private.PublicKey().Bytes()) }

// Secret implements KeyPair.
func (p x25519) Secret(other [32]byte) ([]byte, error) {
	pub, err := ecdh.X25519().NewPublicKey(other[:])
	if err != nil {
		return nil, fmt.Errorf("x25519: %w", err)
	}
	secret, err := p.private.ECDH(pub)
	if err != nil {
		return nil, fmt.Errorf("x25519: %w", err)
	}
	return secret, nil
}

// secretless are the public keys with which every private one agrees on zero: 0, 1, two points of order 8, and p-1, p, p+1
// (RFC 7748, section 6.1; the list is that of all points of small order on the curve and its twist). Little-endian.
var secretless = [...][32]byte{
	{},
	{1},
	{0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a,
		0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00},
	{0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b,
		0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57},
	nearPrime(0xec), nearPrime(0xed), nearPrime(0xee),
}

// nearPrime is 2^255 - 256 + low.
func nearPrime(low byte) (b [32]byte) {
	for i := range b {
		b[i] = 0xff
	}
	b[0], b[31] = low, 0x7f
	return b
}

// CheckPublic says whether a public key gives a secret with any other pair, without working one out.
func CheckPublic(pub [32]byte) error {
	masked := pub
	masked[31] &= 0x7f // as X25519 reads it
	if slices.Contains(secretless[:], masked) {
		return fmt.Errorf("seal: public key %x gives no secret", pub)
	}
	return nil
}

// PublicKey is the X25519 public key of 32 random bytes.
func PublicKey(priv [32]byte) [32]byte { return NewKeyPair(priv).Public() }

// FrameKey is PairFrameKey for an X25519 private key that is used once.
func FrameKey(priv, pub, reservationHash [32]byte, claim kvtransfer.ClaimID) ([32]byte, error) {
	return PairFrameKey(NewKeyPair(priv), pub, reservationHash, claim)
}

// ReplyKey is PairReplyKey for an X25519 private key that is used once.
func ReplyKey(priv, pub, reservationHash [32]byte) ([32]byte, error) {
	return PairReplyKey(NewKeyPair(priv), pub, reservationHash)
}

// PairFrameKey is the key of one claim's frames, from either side: one's own pair and the other's public key, the hash of the
// reservation and the claim. The error says that the public key is one of those that give no secret.
func PairFrameKey(pair KeyPair, pub, reservationHash [32]byte, claim kvtransfer.ClaimID) ([32]byte, error) {
	key, err := derive(pair, pub, reservationHash, "quire frame 1\x00"+string(claim[:]))
	if err != nil {
		return [32]byte{}, fmt.Errorf("seal: frame key: claim %s: %w", claim, err)
	}
	return key, nil
}

// PairReplyKey is the key of one attempt's replies, from either side: decode's and the router's keys and the hash of the
// reservation.
func PairReplyKey(pair KeyPair, pub, reservationHash [32]byte) ([32]byte, error) {
	key, err := derive(pair, pub, reservationHash, "quire reply 1\x00")
	if err != nil {
		return [32]byte{}, fmt.Errorf("seal: reply key: %w", err)
	}
	return key, nil
}

// PromptDigest is the keyed digest of a tenant's token ids: HMAC-SHA256 with the cluster's key, each part behind its length.
// Without the key nobody can try prompts against it, and two tenants' equal prompts have different digests.
func PromptDigest(clusterKey [32]byte, tenant string, tokens []int32) (sum [32]byte) {
	h := hmac.New(sha256.New, clusterKey[:])
	b := make([]byte, 0, 64+len(tenant)+4*len(tokens))
	b = append(b, "quire prompt 1\x00"...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tenant)))
	b = append(b, tenant...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(tokens)))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	h.Write(b)
	h.Sum(sum[:0])
	return sum
}

func derive(pair KeyPair, pub, salt [32]byte, info string) (key [32]byte, err error) {
	secret, err := pair.Secret(pub)
	if err != nil {
		return key, err
	}
	b, err := hkdf.Key(sha256.New, secret, salt[:], info, len(key))
	if err != nil {
		return key, fmt.Errorf("hkdf: %w", err)
	}
	return [32]byte(b), nil
}
