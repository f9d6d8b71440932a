// Package keys holds the keys directory of a cluster: who may sign what, and the key of the prompt digests.
//
// The directory holds one Ed25519 nkey seed per role ("router.seed", mode 0600), "prompt.key" (32 random bytes in hexadecimal,
// 0600) and "cluster.json" with the public halves. Ensure makes it once; a process on another machine gets a copy of
// cluster.json, prompt.key and the seed of its own role alone. No key is ever learnt from the bus.
package keys

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nkeys"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
)

// Roles are those that get a key, in the order of cluster.json.
var Roles = []kvtransfer.Role{kvtransfer.RoleBus, kvtransfer.RoleRouter, kvtransfer.RolePrefill, kvtransfer.RoleDecode}

const (
	clusterFile = "cluster.json"
	promptFile  = "prompt.key"
	version     = 1
)

// Ring is a cluster's keys as one process holds them. It never changes; copies share what they hold.
type Ring struct {
	dir    string
	public map[kvtransfer.Role]ed25519.PublicKey
	seeds  map[kvtransfer.Role]ed25519.PrivateKey // only of roles whose seed is in the directory
	prompt [32]byte
}

var _ seal.Verifier = Ring{}

// cluster is cluster.json.
type cluster struct {
	Version int               `json:"version"`
	Roles   map[string]string `json:"roles"` // role -> public user nkey, "U..."
}

// Ensure loads the directory, or makes it with fresh keys for every role. Processes that call it at the same time get the same
// keys: the first complete directory wins.
func Ensure(dir string) (*Ring, error) {
	if _, err := os.Stat(filepath.Join(dir, clusterFile)); err == nil {
		return Load(dir)
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	tmp, err := os.MkdirTemp(parent, ".keys-")
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := write(tmp); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		ring, loadErr := Load(dir)
		if loadErr != nil {
			return nil, fmt.Errorf("keys: make %s: %w", dir, errors.Join(err, loadErr))
		}
		return ring, nil
	}
	return Load(dir)
}

func write(dir string) error {
	c := cluster{Version: version, Roles: map[string]string{}}
	for _, role := range Roles {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return fmt.Errorf("keys: %s: %w", role, err)
		}
		seed, err := pair.Seed()
		if err != nil {
			return fmt.Errorf("keys: %s: %w", role, err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			return fmt.Errorf("keys: %s: %w", role, err)
		}
		if err := os.WriteFile(seedPath(dir, role), append(seed, '\n'), 0o600); err != nil {
			return fmt.Errorf("keys: %w", err)
		}
		c.Roles[string(role)] = public
	}
	prompt := hex.EncodeToString(Entropy(32)) + "\n"
	if err := os.WriteFile(filepath.Join(dir, promptFile), []byte(prompt), 0o600); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, clusterFile), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	return nil
}

// Load reads a directory that Ensure made, or a copy with fewer seeds. A directory that is not there gives an error that
// wraps fs.ErrNotExist; a secret file that others than its owner may read is refused.
func Load(dir string) (*Ring, error) {
	r := &Ring{dir: dir, public: map[kvtransfer.Role]ed25519.PublicKey{}, seeds: map[kvtransfer.Role]ed25519.PrivateKey{}}
	if err := r.loadCluster(filepath.Join(dir, clusterFile)); err != nil {
		return nil, err
	}
	text, err := readSecret(filepath.Join(dir, promptFile))
	if err != nil {
		return nil, err
	}
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(r.prompt) {
		return nil, fmt.Errorf("keys: %s: want %d bytes in hexadecimal, have %d characters", filepath.Join(dir, promptFile), len(r.prompt), len(text))
	}
	copy(r.prompt[:], raw)
	for role := range r.public {
		if err := r.loadSeed(role); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return r, nil
}

func (r *Ring) loadCluster(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("keys: %w (made by quire up and quire bus; other machines need a copy)", err)
	}
	var c cluster
	if err := json.Unmarshal(b, &c); err != nil {
		return fmt.Errorf("keys: %s: %w", path, err)
	}
	if c.Version != version {
		return fmt.Errorf("keys: %s: version %d, this program reads %d", path, c.Version, version)
	}
	for _, role := range Roles {
		text, ok := c.Roles[string(role)]
		if !ok {
			return fmt.Errorf("keys: %s: role %s is missing", path, role)
		}
		public, err := nkeys.Decode(nkeys.PrefixByteUser, []byte(text))
		if err != nil || len(public) != ed25519.PublicKeySize {
			return fmt.Errorf("keys: %s: role %s: %d characters are not a public user nkey", path, role, len(text))
		}
		r.public[role] = public
	}
	return nil
}

func (r *Ring) loadSeed(role kvtransfer.Role) error {
	path := seedPath(r.dir, role)
	text, err := readSecret(path)
	if err != nil {
		return err
	}
	prefix, raw, err := nkeys.DecodeSeed([]byte(text))
	if err != nil || prefix != nkeys.PrefixByteUser || len(raw) != ed25519.SeedSize {
		return fmt.Errorf("keys: %s: %d characters are not the seed of a user nkey", path, len(text))
	}
	private := ed25519.NewKeyFromSeed(raw)
	if !r.public[role].Equal(private.Public()) {
		return fmt.Errorf("keys: %s: does not belong to the public key of role %s in %s", path, role, clusterFile)
	}
	r.seeds[role] = private
	return nil
}

// readSecret reads a small file that only its owner may read.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("keys: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf("keys: %s: mode %04o, want 0600: others may read it; chmod 600 %s", path, mode, path)
	}
	if info.Size() > 4096 {
		return "", fmt.Errorf("keys: %s: %d bytes, at most 4096", path, info.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("keys: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func seedPath(dir string, role kvtransfer.Role) string {
	return filepath.Join(dir, string(role)+".seed")
}

// Dir is where the ring was read from.
func (r Ring) Dir() string { return r.dir }

// Verify implements seal.Verifier.
func (r Ring) Verify(role kvtransfer.Role, msg, sig []byte) bool {
	public, ok := r.public[role]
	return ok && len(sig) == ed25519.SignatureSize && ed25519.Verify(public, msg, sig)
}

// Signer gives a role's signer; an error where the directory does not hold its seed.
func (r Ring) Signer(role kvtransfer.Role) (seal.Signer, error) {
	private, ok := r.seeds[role]
	if !ok {
		return nil, fmt.Errorf("keys: %s: no seed of role %s", r.dir, role)
	}
	return signer{private}, nil
}

// PromptKey is the key of the prompt digests.
func (r Ring) PromptKey() [32]byte { return r.prompt }

// String tells where the keys are and nothing about them, so that a ring in a log line is harmless.
func (r Ring) String() string { return "keys of " + r.dir }

// GoString is String, for %#v.
func (r Ring) GoString() string { return r.String() }

type signer struct{ private ed25519.PrivateKey }

// Sign implements seal.Signer.
func (s signer) Sign(msg []byte) []byte { return ed25519.Sign(s.private, msg) }

// String hides the seed.
func (s signer) String() string { return "signer" }

// GoString hides the seed.
func (s signer) GoString() string { return "signer" }

// Entropy gives n bytes from the operating system.
func Entropy(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand stops the process instead
	return b
}
