//go:build invariants && cuda && linux

package cuda

// invariants: check what must hold even where checking costs time.
const invariants = true
