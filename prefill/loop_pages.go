package prefill

import "quire/kvtransfer"

// Pages tells who has which page and how far each hand-off is, for people to look at. It changes nothing.
func (l *Loop) Pages() kvtransfer.Pages {
	p := kvtransfer.Pages{Worker: l.cfg.Peer, PageSize: l.ledger.PageSize(), Counts: l.ledger.Counts()}
	known := make(map[kvtransfer.Key]*attempt, len(l.attempts))
	for _, a := range l.attempts {
		known[a.out.Key()] = a
	}
	for _, held := range l.ledger.Holdings() {
		o := kvtransfer.PageOwner{Key: kvtransfer.Key{ID: held.Owner.Handoff, Attempt: held.Owner.Attempt}, State: held.State,
			Rows: held.Rows, Runs: held.Runs}
		if a := known[o.Key]; a != nil {
			o.Tenant, o.Prompt = a.out.Reservation().Tenant, a.out.Reservation().N
			if !a.out.State().Ended() {
				o.Step = a.out.State().String()
			}
		}
		p.Add(o)
	}
	return p
}
