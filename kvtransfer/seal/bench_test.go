package seal

import (
	"testing"

	"quire/kvtransfer"
	"quire/kvtransfer/wire"
)

// BenchmarkFrame is one frame's way through prefill and decode but for the bus: seal, encode, decode, open. [512 KiB]
func BenchmarkFrame(b *testing.B) {
	plain, scratch := make([]byte, 512<<10), make([]byte, 0, 512<<10)
	b.SetBytes(int64(len(plain)))
	for b.Loop() {
		sealed := SealFrame(bytes32(1), bytes32(2), header, plain)
		f, err := wire.DecodeFrame(wire.EncodeFrame(kvtransfer.Frame{Header: header, Sealed: sealed}))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := OpenFrame(bytes32(1), bytes32(2), f.Header, f.Sealed, scratch); err != nil {
			b.Fatal(err)
		}
	}
}
