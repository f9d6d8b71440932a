package keys

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"

	"quire/kvtransfer"
)

// Public loads the public halves alone: what a machine that only checks signatures needs. path is cluster.json, or a
// directory that has it. The ring signs nothing, and its prompt key is no cluster's.
func Public(path string) (*Ring, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	dir := path
	if !info.IsDir() {
		dir = filepath.Dir(path)
	} else {
		path = filepath.Join(path, clusterFile)
	}
	r := &Ring{dir: dir, public: map[kvtransfer.Role]ed25519.PublicKey{}, seeds: map[kvtransfer.Role]ed25519.PrivateKey{}}
	return r, r.loadCluster(path)
}
