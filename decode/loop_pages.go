package decode

import "quire/kvtransfer"

// Pages tells who has which page and how far each hand-off is, for people to look at. It changes nothing.
func (l *Loop) Pages() kvtransfer.Pages {
	p := kvtransfer.Pages{Worker: l.cfg.Self, PageSize: l.ledger.PageSize(), Counts: l.ledger.Counts()}
	for _, held := range l.ledger.Holdings() {
		o := kvtransfer.PageOwner{Key: kvtransfer.Key{ID: held.Owner.Handoff, Attempt: held.Owner.Attempt}, State: held.State,
			Rows: held.Rows, Runs: held.Runs}
		if h := l.handoffs[o.Key]; h != nil {
			o.Tenant, o.Prompt, o.Output = h.in.Reservation.Tenant, h.in.Reservation.N, h.output
			if !h.in.State.Over() {
				o.Step = h.in.State.String()
			}
			if o.Rows == 0 {
				o.Rows = filled(h.in.Frames(), h.in.Shape.Layers)
			}
		}
		p.Add(o)
	}
	return p
}

// filled is how many rows the copied frames make, a row of one of so many layers counted as its share.
func filled(frames []kvtransfer.ReceivedFrame, layers int) int {
	n := 0
	for _, f := range frames {
		if h := f.Header; f.Copied {
			n += (h.RowTo - h.RowFrom) * (h.LayerTo - h.LayerFrom)
		}
	}
	return n / max(1, layers)
}
