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

// PublicKey is the X25519 public key of 32 random bytes.
func PublicKey(priv [32]byte) [32]byte {
	return [32]byte(privateKey(priv).PublicKey().Bytes())
}

// FrameKey is the key of one claim's frames, from either side: one's own private and the other's public X25519 key, the hash
// of the reservation and the claim. The error says that the public key is one of those that give no secret.
func FrameKey(priv, pub, reservationHash [32]byte, claim kvtransfer.ClaimID) ([32]byte, error) {
	key, err := derive(priv, pub, reservationHash, "quire frame 1\x00"+string(claim[:]))
	if err != nil {
		return [32]byte{}, fmt.Errorf("seal: frame key: claim %s: %w", claim, err)
	}
	return key, nil
}

// ReplyKey is the key of one attempt's replies, from either side: decode's and the router's X25519 keys and the hash of the
// reservation.
func ReplyKey(priv, pub, reservationHash [32]byte) ([32]byte, error) {
	key, err := derive(priv, pub, reservationHash, "quire reply 1\x00")
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

// privateKey cannot fail: any 32 bytes are an X25519 private key.
func privateKey(b [32]byte) *ecdh.PrivateKey {
	k, err := ecdh.X25519().NewPrivateKey(b[:])
	if err != nil {
		panic("seal: x25519: " + err.Error())
	}
	return k
}

func derive(priv, pub, salt [32]byte, info string) (key [32]byte, err error) {
	p, err := ecdh.X25519().NewPublicKey(pub[:])
	if err != nil {
		return key, fmt.Errorf("x25519: %w", err)
	}
	secret, err := privateKey(priv).ECDH(p)
	if err != nil {
		return key, fmt.Errorf("x25519: %w", err)
	}
	b, err := hkdf.Key(sha256.New, secret, salt[:], info, len(key))
	if err != nil {
		return key, fmt.Errorf("hkdf: %w", err)
	}
	return [32]byte(b), nil
}
