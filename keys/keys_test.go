package keys

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"quire/kvtransfer"
)

func ensure(t *testing.T) (*Ring, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	r, err := Ensure(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r, dir
}

func TestEachRoleVerifiesOnlyItsOwn(t *testing.T) {
	r, dir := ensure(t)
	again, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again.PromptKey() != r.PromptKey() || r.PromptKey() == [32]byte{} {
		t.Fatal("the prompt key did not survive a reload, or is zero")
	}
	msg := []byte("reserve")
	for _, role := range Roles {
		s, err := r.Signer(role)
		if err != nil {
			t.Fatal(err)
		}
		sig := s.Sign(msg)
		for _, other := range Roles {
			if got := again.Verify(other, msg, sig); got != (other == role) {
				t.Errorf("signature of %s under the key of %s: %v", role, other, got)
			}
		}
		if again.Verify(role, []byte("other"), sig) || again.Verify(role, msg, sig[:10]) || again.Verify("nobody", msg, sig) {
			t.Errorf("%s: accepted a foreign message, a short signature or an unknown role", role)
		}
	}
}

func TestFilesAreSecret(t *testing.T) {
	_, dir := ensure(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(Roles)+2 {
		t.Errorf("%d files, want %d", len(entries), len(Roles)+2)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", e.Name(), info.Mode())
		}
	}
	for _, name := range []string{"decode.seed", promptFile} {
		for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
			path := filepath.Join(dir, name)
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "chmod 600") {
				t.Errorf("%s with mode %v: %v", name, mode, err)
			}
			if err := os.Chmod(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestPartialAndBrokenDirectories(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
	_, dir := ensure(t)
	if err := os.Remove(filepath.Join(dir, "router.seed")); err != nil {
		t.Fatal(err)
	}
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Signer(kvtransfer.RoleRouter); err == nil {
		t.Error("a signer without a seed")
	}
	if _, err := r.Signer(kvtransfer.RoleDecode); err != nil {
		t.Error(err)
	}
	swap, err := os.ReadFile(filepath.Join(dir, "prefill.seed"))
	if err != nil {
		t.Fatal(err)
	}
	breaks := map[string][]byte{"decode.seed": swap, promptFile: []byte("00ff"), clusterFile: []byte(`{"version":1,"roles":{}}`)}
	for name, content := range breaks {
		path := filepath.Join(dir, name)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil {
			t.Errorf("%s = %q was accepted", name, content)
		}
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEnsureTogether(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "keys")
	rings := make([]*Ring, 8)
	var wg sync.WaitGroup
	for i := range rings {
		wg.Go(func() {
			r, err := Ensure(dir)
			if err != nil {
				t.Error(err)
				return
			}
			rings[i] = r
		})
	}
	wg.Wait()
	for _, r := range rings {
		if r == nil || r.PromptKey() != rings[0].PromptKey() {
			t.Fatal("two processes hold different keys")
		}
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(left) != 1 {
		t.Errorf("%d entries beside the keys: %v", len(left), err)
	}
}

func TestNothingPrintsASecret(t *testing.T) {
	r, dir := ensure(t)
	s, err := r.Signer(kvtransfer.RoleDecode)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := os.ReadFile(filepath.Join(dir, "decode.seed"))
	if err != nil {
		t.Fatal(err)
	}
	key := r.PromptKey()
	for _, out := range []string{fmt.Sprintf("%v %+v %#v", r, *r, r), fmt.Sprintf("%v %+v %#v", s, s, s)} {
		if bytes.Contains([]byte(out), bytes.TrimSpace(seed)) || strings.Contains(out, fmt.Sprint(key[0], " ", key[1], " ", key[2])) {
			t.Errorf("printed a secret: %s", out)
		}
	}
	if len(out(r)) > 200 {
		t.Errorf("a ring prints as %s", out(r))
	}
}

func out(r *Ring) string { return fmt.Sprintf("%+v", r) }
