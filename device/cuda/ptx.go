//go:build cuda && linux

package cuda

import (
	_ "embed"
	"strings"
)

// ptx is kernel/all.cu, compiled by `make ptx`. Its first line names the compiler and the sources' hash.
//
//go:embed kernel/quire.ptx
var ptx string

// ptxVariant names the kernels: the target and the beginning of the sources' hash.
func ptxVariant() string {
	head, _, _ := strings.Cut(ptx, "\n")
	_, hash, _ := strings.Cut(head, "sources ")
	return "sm_80-" + hash[:min(8, len(hash))]
}
