//go:build cuda && linux

package cuda

import (
	"fmt"
	"math"

	"quire/device"
)

func (p *plan) layCompare(o device.Compare) error {
	if p.pool == nil {
		return fmt.Errorf("device/cuda: compare: the batch has no pool")
	}
	if err := device.CheckCompare(p.batch, o); err != nil {
		return err
	}
	first := make([]int32, len(p.batch.Seqs))
	for i := range first {
		first[i] = math.MaxInt32
	}
	at := put(&p.room, first)
	if err := p.add("witness", len(p.batch.Tokens), o.Layers, 128, p.rec, p.pool.rec, at); err != nil {
		return err
	}
	p.cmds = append(p.cmds, command{ints: o.Differs, at: at})
	p.compares = append(p.compares, o.Differs)
	return nil
}

// noneDiffers turns what the kernel left untouched into -1.
func noneDiffers(differs []int32) {
	for i, d := range differs {
		if d == math.MaxInt32 {
			differs[i] = -1
		}
	}
}
