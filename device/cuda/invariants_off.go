//go:build !invariants && cuda && linux

package cuda

const invariants = false
