// Package tape records content, so that it can be computed again: the prompt, the sampling and the answer of requests of chosen
// tenants, and what decode had of their hand-offs, frames included. It is off unless a tenant is named. All of it is sealed with
// its tenant's key, which lies in a bucket beside the stream; destroying the key destroys what was recorded of the tenant,
// wherever copies of the stream went.
package tape

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"quire/kvtransfer"
)

// Version of takes. A newer one is refused.
const Version = 1

// MaxTake is the most bytes that a take may have.
const MaxTake = 16 << 20

// ErrKey says that a take does not open: it is of another tenant, was changed, or its key is gone.
var ErrKey = errors.New("the take does not open under this key")

// Take is one request as the router had it.
type Take struct {
	Handoff  kvtransfer.HandoffID `json:"-"` // in the subject, and bound to the seal
	Tenant   string               `json:"-"`
	Model    string               `json:"model"` // full name
	Weights  [32]byte             `json:"weights"`
	Prompt   []int32              `json:"prompt"`
	Output   []int32              `json:"output"`
	Sampling kvtransfer.Sampling  `json:"sampling"` // with the seed that was used
	Max      int                  `json:"max_tokens"`
	Finish   kvtransfer.Finish    `json:"finish"`
}

// Key seals the takes of one tenant.
type Key [32]byte

// NewKey makes a key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails: crypto/rand stops the process instead
	return k
}

func (t Take) bound() []byte {
	return fmt.Appendf(nil, "quire tape %d\x00%s\x00%x", Version, t.Tenant, t.Handoff[:])
}

func (k Key) aead() (cipher.AEAD, error) {
	b, err := aes.NewCipher(k[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(b)
}

// Seal gives the bytes of a take: its version, then nonce and sealed JSON.
func (t Take) Seal(k Key) ([]byte, error) {
	plain, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	if len(plain) > MaxTake {
		return nil, fmt.Errorf("tape: take of %d bytes, limit %d", len(plain), MaxTake)
	}
	g, err := k.aead()
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	return g.Seal([]byte{Version}, nil, plain, t.bound()), nil
}

// Open reads a take of a tenant and a hand-off, as its subject names them.
func Open(k Key, tenant string, id kvtransfer.HandoffID, b []byte) (Take, error) {
	t := Take{Handoff: id, Tenant: tenant}
	switch {
	case len(b) < 1 || len(b) > MaxTake+64:
		return t, fmt.Errorf("tape: take of %d bytes, limit %d", len(b), MaxTake+64)
	case b[0] != Version:
		return t, fmt.Errorf("tape: take of version %d, known %d", b[0], Version)
	}
	g, err := k.aead()
	if err != nil {
		return t, fmt.Errorf("tape: %w", err)
	}
	plain, err := g.Open(nil, nil, b[1:], t.bound())
	if err != nil {
		return t, fmt.Errorf("tape: hand-off %s: %w", id, ErrKey)
	}
	if err := json.Unmarshal(plain, &t); err != nil {
		return t, fmt.Errorf("tape: hand-off %s: %w", id, err)
	}
	return t, nil
}
