package sim

import (
	"crypto/sha256"
	"crypto/subtle"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
)

// ring stands in for the keys directory behind the same interfaces: a signature is a hash over the role's secret and the
// message, which costs a hundredth of Ed25519 and is as hard to make without the secret. X25519, key derivation and AES-GCM are
// the real ones.
type ring struct{ secret [32]byte }

// signer signs for one role.
type signer struct {
	r    ring
	role kvtransfer.Role
}

// Sign implements seal.Signer.
func (s signer) Sign(msg []byte) []byte { return s.r.sum(s.role, msg) }

// Verify implements seal.Verifier.
func (r ring) Verify(role kvtransfer.Role, msg, sig []byte) bool {
	return subtle.ConstantTimeCompare(r.sum(role, msg), sig) == 1
}

func (r ring) sum(role kvtransfer.Role, msg []byte) []byte {
	h := sha256.New()
	h.Write(r.secret[:])
	h.Write([]byte(role))
	h.Write([]byte{0})
	h.Write(msg)
	sum := h.Sum(nil)
	return append(sum, sum...)
}

func (r ring) signer(role kvtransfer.Role) seal.Signer { return signer{r, role} }

// promptKey is the cluster's key of prompt digests.
func (r ring) promptKey() [32]byte { return sha256.Sum256(r.secret[:]) }

// keyring is what processes need of keys: the stand-in, or real keys.
type keyring interface {
	seal.Verifier
	signer(role kvtransfer.Role) seal.Signer
	promptKey() [32]byte
}
