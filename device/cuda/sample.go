//go:build cuda && linux

package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"quire/device"
)

// samplingRec is Sampling of kernel/sample.cu.
type samplingRec struct {
	inverse, topP, minP, u float64
	topK, greedy           int32
}

// Picks says that the device chooses tokens.
func (d *Device) Picks() bool { return true }

func (p *plan) layPick(o device.Pick) error {
	logits, err := p.buffer(o.Logits, len(o.How), 0)
	if err != nil {
		return err
	}
	if len(o.How) == 0 || len(o.To) != len(o.How) {
		return fmt.Errorf("device/cuda: pick: %d rows, %d results", len(o.How), len(o.To))
	}
	how := make([]samplingRec, len(o.How))
	for i, h := range o.How {
		how[i] = samplingRec{topP: h.TopP, minP: h.MinP, u: h.U, topK: int32(h.TopK)}
		if h.Temperature > 0 {
			how[i].inverse = 1 / h.Temperature
		} else {
			how[i].greedy = 1
		}
	}
	at := put(&p.room, make([]int32, len(o.To)))
	if err := p.add("sample", len(how), 1, 256, logits.at, logits.stride, logits.cols, put(&p.room, how), p.roots, at); err != nil {
		return err
	}
	p.cmds = append(p.cmds, command{ints: o.To, at: at})
	return nil
}

// uploadRoots puts 2 to the j/64 on the device, made from square roots, which are exact to the last bit everywhere.
func (p *plan) uploadRoots() error {
	var t [64]float64
	for j := range t {
		t[j] = 1
		root := 2.0
		for bit := 32; bit > 0; bit /= 2 {
			root = math.Sqrt(root)
			if j&bit != 0 {
				t[j] *= root
			}
		}
	}
	var err error
	if p.roots, err = p.dev.alloc(len(t) * 8); err != nil {
		return err
	}
	if err := toDevice(p.roots, unsafe.Pointer(&t[0]), len(t)*8); err != nil {
		return failed("roots", err)
	}
	return nil
}
