package kvtransfer

import (
	"crypto/sha256"
	"encoding/hex"
)

// Pool names the workers that may exchange pages: the first 16 hexadecimal digits of SHA-256 over the layout and the compute
// fingerprint. It is the <pool> of job subjects and of heartbeats, so a job reaches only workers whose bytes decode can check.
func (f Fingerprints) Pool() string {
	h := sha256.New()
	h.Write(f.Layout[:])
	h.Write(f.Compute[:])
	return hex.EncodeToString(h.Sum(nil)[:8])
}
