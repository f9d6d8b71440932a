package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// packAlone is up to how many bytes one goroutine packs by itself.
const packAlone = 256 << 10

// packAll packs all rows, as they are in a file, on all processors: each takes the next panel.
func (m *matrix) packAll(src []byte, rowBytes int) {
	var next atomic.Int64
	work := func() {
		for {
			p := int(next.Add(1) - 1)
			if p >= m.panels {
				return
			}
			for r := p * panelRows; r < min((p+1)*panelRows, m.rows); r++ {
				m.pack(r, src[r*rowBytes:(r+1)*rowBytes])
			}
		}
	}
	if len(src) <= packAlone {
		work()
		return
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), m.panels) {
		wg.Go(work)
	}
	wg.Wait()
}
