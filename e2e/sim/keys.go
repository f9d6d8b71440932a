package sim

import (
	"crypto/sha256"
	"crypto/subtle"
	"sync"

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
	b := make([]byte, 0, 512)
	b = append(append(b, r.secret[:]...), role...)
	sum := sha256.Sum256(append(append(b, 0), msg...))
	return append(append(make([]byte, 0, 2*len(sum)), sum[:]...), sum[:]...)
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

// Key agreement is the dearest thing that a run does, so most runs take their X25519 pairs from a few that all runs share, and
// what two of them agree on is worked out once. The frame keys and reply keys of two attempts differ all the same: they are made
// of the reservation and the claim too. One seed in freshEvery makes every pair anew, as processes do.
const (
	poolPairs  = 64
	freshEvery = 32
)

// pooledPair is one of the pool.
type pooledPair struct {
	seal.KeyPair
	public  [32]byte
	secrets *sync.Map // with whom -> []byte, for others of the pool
}

var pool = sync.OnceValues(func() ([]*pooledPair, map[[32]byte]bool) {
	pairs, members := make([]*pooledPair, poolPairs), map[[32]byte]bool{}
	for i := range pairs {
		pair := seal.NewKeyPair(sha256.Sum256([]byte{'p', byte(i)}))
		pairs[i] = &pooledPair{KeyPair: pair, public: pair.Public(), secrets: &sync.Map{}}
		members[pairs[i].public] = true
	}
	return pairs, members
})

// Public implements seal.KeyPair.
func (p *pooledPair) Public() [32]byte { return p.public }

// Secret implements seal.KeyPair. With a key that is not of the pool, as a changed byte makes one, it is worked out.
func (p *pooledPair) Secret(other [32]byte) ([]byte, error) {
	if s, ok := p.secrets.Load(other); ok {
		return s.([]byte), nil
	}
	secret, err := p.KeyPair.Secret(other)
	if _, members := pool(); err == nil && members[other] {
		p.secrets.Store(other, secret)
	}
	return secret, err
}

// keyPair makes the pair that a process asks for.
func (w *World) keyPair(seed [32]byte) seal.KeyPair {
	if w.Seed%freshEvery == 0 {
		return seal.NewKeyPair(seed)
	}
	pairs, _ := pool()
	return pairs[int(seed[0])%len(pairs)]
}
