package model

import "crypto/sha256"

// hasher hashes the files of a model in pieces and says how far it is.
type hasher struct {
	done, total int64
	progress    func(done, total int64)
}

// hashPiece is how many bytes pass between two calls of progress.
const hashPiece = 8 << 20

func newHasher(total int64, progress func(done, total int64)) *hasher {
	return &hasher{total: total, progress: progress}
}

// sum gives the SHA-256 of b.
func (h *hasher) sum(b []byte) []byte {
	sha := sha256.New()
	for len(b) > 0 {
		n := min(len(b), hashPiece)
		sha.Write(b[:n])
		b = b[n:]
		h.done += int64(n)
		if h.progress != nil {
			h.progress(h.done, h.total)
		}
	}
	return sha.Sum(nil)
}
