package sim

import (
	"path/filepath"
	"testing"

	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
)

// realKeys is a keys directory in place of the stand-in.
type realKeys struct {
	*keys.Ring
	signers map[kvtransfer.Role]seal.Signer
}

func (r realKeys) signer(role kvtransfer.Role) seal.Signer { return r.signers[role] }
func (r realKeys) promptKey() [32]byte                     { return r.PromptKey() }

// TestRealKeys runs some seeds with Ed25519: nothing but the time they take is another.
func TestRealKeys(t *testing.T) {
	ring, err := keys.Ensure(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	r := realKeys{ring, map[kvtransfer.Role]seal.Signer{}}
	for _, role := range keys.Roles {
		if r.signers[role], err = ring.Signer(role); err != nil {
			t.Fatal(err)
		}
	}
	for seed := uint64(1); seed <= 6; seed++ {
		if res := Run(seed, Options{keys: r}); res.Failure != nil {
			t.Error(res.Failure)
		}
	}
}
