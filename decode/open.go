package decode

import (
	"encoding/binary"
	"math"

	"quire/kvtransfer"
)

// splitHidden takes a frame's opened bytes apart: the rows, and the vector that its header says follows them. A header that
// asks for more than there is leaves the vector out, and the machine finds the lengths wrong.
func splitHidden(h kvtransfer.FrameHeader, plain []byte) (kvtransfer.Opening, []byte) {
	o := kvtransfer.Opening{OK: true, Bytes: len(plain)}
	if h.Hidden <= 0 || h.Hidden > len(plain)/4 {
		return o, plain
	}
	rows := plain[:len(plain)-4*h.Hidden]
	o.Hidden = make([]float32, h.Hidden)
	for i := range o.Hidden {
		o.Hidden[i] = math.Float32frombits(binary.LittleEndian.Uint32(plain[len(rows)+4*i:]))
	}
	return o, rows
}
