package keys

import (
	"os"
	"path/filepath"
	"testing"

	"quire/kvtransfer"
)

// The public half alone checks what a cluster signed, and signs nothing.
func TestPublic(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	ring, err := Ensure(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ring.Signer(kvtransfer.RoleDecode)
	if err != nil {
		t.Fatal(err)
	}
	sig := s.Sign([]byte("x"))
	b, err := os.ReadFile(filepath.Join(dir, clusterFile))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "public.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, file} {
		p, err := Public(path)
		if err != nil {
			t.Fatal(err)
		}
		if !p.Verify(kvtransfer.RoleDecode, []byte("x"), sig) || p.Verify(kvtransfer.RoleRouter, []byte("x"), sig) {
			t.Errorf("%s checks wrongly", path)
		}
		if _, err := p.Signer(kvtransfer.RoleDecode); err == nil {
			t.Errorf("%s signs", path)
		}
	}
	for _, path := range []string{filepath.Join(dir, "none"), t.TempDir(), filepath.Join(dir, promptFile)} {
		if _, err := Public(path); err == nil {
			t.Errorf("%s is read", path)
		}
	}
}
