package router

import (
	"testing"

	"quire/kvtransfer"
)

// What a prefill said of its slots counts for nothing once it drains or is silent, and never for those of another pool: the slots of the
// others are free all the same.
func TestSlotsOfAPrefillThatIsGone(t *testing.T) {
	for _, p2 := range []string{"drains", "is silent", "is of another pool"} {
		w := newWorld(t, Policy{})
		busy := beatOf(kvtransfer.RolePrefill, "p2", 1, 64, 4)
		busy.SlotsFree, busy.Running = 0, 4
		if p2 == "is of another pool" {
			busy.Fingerprints.Layout[0]++
			busy.Pool = busy.Fingerprints.Pool()
		}
		if w.do(Heard{busy}); p2 == "drains" {
			busy.Draining = true
			w.do(Heard{busy})
		}
		for range 40 {
			w.now += 100 * ms
			w.do(Tick{Now: w.now})
			if p2 != "is silent" {
				w.do(Heard{busy})
			}
			w.do(Heard{beatOf(kvtransfer.RolePrefill, "p1", 1, 64, 2)})
			w.do(Heard{beatOf(kvtransfer.RoleDecode, "d1", 1, 64, 4)})
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
			t.Errorf("p2 %s: %d of 2 requests were placed on p1, whose two slots are free:\n%s", p2, reserves, w.l.Dump())
		}
	}
}
