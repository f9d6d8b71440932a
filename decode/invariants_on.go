//go:build invariants

package decode

// invariants: check what must hold even where checking costs time.
const invariants = true
