package seal

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

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
