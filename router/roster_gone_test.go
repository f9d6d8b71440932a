package router

import (
	"testing"

	"quire/kvtransfer"
)

// What a prefill said of its slots counts for nothing once it drains or is silent: the slots of the others are free all the same.
func TestSlotsOfAPrefillThatIsGone(t *testing.T) {
	for _, draining := range []bool{true, false} {
		w := newWorld(t, Policy{})
		busy := beatOf(kvtransfer.RolePrefill, "p2", 1, 64, 4)
		busy.SlotsFree, busy.Running = 0, 4
		if w.do(Heard{busy}); draining {
			busy.Draining = true
			w.do(Heard{busy})
		}
		for range 40 { // p2 says no more
			w.now += 100 * ms
			w.do(Tick{Now: w.now})
			w.do(Heard{beatOf(kvtransfer.RolePrefill, "p1", 1, 64, 2)})
			w.do(Heard{beatOf(kvtransfer.RoleDecode, "d1", 1, 64, 4)})
			if draining {
				break
			}
		}
		reserves := 0
		for ref := range uint64(2) {
			for _, fx := range w.do(Submitted{Ref: ref + 1, Tenant: "a", Tokens: make([]int32, 4), MaxTokens: 2}) {
				if _, ok := fx.(SendReserve); ok {
					reserves++
				}
			}
		}
		if reserves != 2 {
			t.Errorf("draining %t: %d of 2 requests were placed on p1, whose two slots are free:\n%s", draining, reserves, w.l.Dump())
		}
	}
}
