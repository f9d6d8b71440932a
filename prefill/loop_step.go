package prefill

import (
	"slices"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
)

// Compute steps: one is out at a time, and frames of the last one leave while it runs.

// startStep starts the next step if none is out and somebody has rows to compute.
func (l *Loop) startStep() {
	if l.step != nil {
		return
	}
	cands := make([]candidate, len(l.attempts))
	lease := kvtransfer.Tick(0)
	for i, a := range l.attempts {
		if !a.paged || a.out.State().Ended() {
			continue // [0,0): nothing to take
		}
		cands[i] = candidate{from: a.out.Rows(), to: len(a.tokens), alone: a.failures > 0}
		if d := a.out.Reservation().Lease; lease == 0 || d < lease {
			lease = d
		}
	}
	budget := stepBudget(l.cfg.Chunk, lease, l.perToken)
	shares, next := nextStep(cands, l.turn, budget)
	if len(shares) == 0 {
		return
	}
	l.turn = next
	l.steps++
	l.step = &step{started: l.now, budget: budget}
	work := make([]model.Work, len(shares))
	for i, s := range shares {
		a := l.attempts[s.index]
		grant, err := l.ledger.Grant(a.out.Key().Owner(), s.from, s.to)
		if err != nil {
			l.check(err)
			return
		}
		a.inStep = true
		l.step.tokens += s.to - s.from
		l.step.parts = append(l.step.parts, stepPart{frame: FrameID{Key: a.out.Key(), Claim: a.out.ClaimID()}, grant: grant})
		work[i] = model.Work{View: a.view, Grant: grant, Tokens: a.tokens[s.from:s.to], From: s.from, Hidden: s.to == len(a.tokens)}
	}
	l.stepping.Began()
	l.emit(Compute{Step: l.steps, Work: work})
}

// chunkDone settles the step's grants and lets its rows count, unless it failed: then each part is tried once more, alone.
func (l *Loop) chunkDone(ev ChunkDone) {
	if l.step == nil || ev.Step != l.steps {
		l.stats.Ignored++
		return
	}
	s := l.step
	l.step = nil
	l.stepping.Ended()
	l.stats.Steps++
	if ev.Err == nil && len(ev.Hidden) != len(s.parts) {
		l.check(kvtransfer.Errorf(kvtransfer.Invariant, "step %d: parts %d, results %d", ev.Step, len(s.parts), len(ev.Hidden)))
		return
	}
	if ev.Err == nil {
		l.stats.StepTokens += uint64(s.tokens)
		l.perToken = measure(l.perToken, l.now-s.started, s.tokens, s.budget)
	} else {
		l.stats.StepsFailed++
	}
	for i, p := range s.parts {
		l.check(l.ledger.Settle(p.grant))
		a := l.find(p.frame.Key, p.frame.Claim)
		if a == nil {
			l.check(kvtransfer.Errorf(kvtransfer.Invariant, "step %d: attempt %s is gone", ev.Step, p.frame.Key))
			return
		}
		a.inStep = false
		switch {
		case a.out.State().Ended():
		case ev.Err != nil:
			l.stepFailed(a, p, ev.Err)
		default:
			l.computed(a, p.grant.To(), ev.Hidden[i])
		}
	}
	l.ping()
}

func (l *Loop) stepFailed(a *attempt, p stepPart, err error) {
	if a.failures++; a.failures >= stepTries {
		l.abort(a, kvtransfer.Errorf(kvtransfer.DeviceFailed, "prefill: rows [%d,%d) of %d: step failed %d times: %v",
			p.grant.From(), p.grant.To(), len(a.tokens), a.failures, err))
	}
}

// computed lets rows up to "to" be read and sent.
func (l *Loop) computed(a *attempt, to int, hidden []float32) {
	view, err := l.ledger.Grow(a.out.Key().Owner(), to)
	l.check(err)
	l.check(a.out.Computed(to))
	a.view, a.failures = view, 0
	if to < len(a.tokens) {
		return
	}
	if len(hidden) != l.cfg.Info.Dim {
		l.check(kvtransfer.Errorf(kvtransfer.Invariant, "hidden vector: %d, dim %d", len(hidden), l.cfg.Info.Dim))
	}
	a.hidden, a.computed = hidden, l.now-a.since
}

// ping sends Progress for every hand-off whose lease no frame restarted lately: a step just showed that this worker lives.
func (l *Loop) ping() {
	for _, a := range l.attempts {
		if a.out.WantsPing() {
			a.out.Pinged()
			l.emit(SendProgress{To: a.out.Reservation().Decode,
				Msg: kvtransfer.Progress{Key: a.out.Key(), Claim: a.out.ClaimID(), Rows: a.out.Rows()}})
		}
	}
}

// zeroed frees pages that hold zeros now. A device that cannot zero them after some tries stops the process: pages that may
// hold a prompt are never given out.
func (l *Loop) zeroed(ev Zeroed) {
	l.clearing.Ended()
	if ev.Err == nil {
		l.zeroing = 0
		l.check(l.ledger.Zeroed(ev.Pages))
		l.freed(ev.Pages)
		return
	}
	if l.zeroing++; l.zeroing < zeroTries {
		l.zero(ev.Pages)
		return
	}
	l.halt(kvtransfer.Errorf(kvtransfer.DeviceFailed, "prefill: zeroing %d pages failed %d times: %v", len(ev.Pages), l.zeroing, ev.Err))
}

// zero has pages cleared.
func (l *Loop) zero(ids []page.ID) {
	l.clearing.Began()
	l.emit(Zero{Pages: ids})
}

// freed tells that pages are free.
func (l *Loop) freed(ids []page.ID) {
	fx := Freed{Pages: ids, Released: l.now}
	for i, r := range l.releases {
		if r.first == ids[0] {
			fx.Released = r.at
			l.releases = slices.Delete(l.releases, i, i+1)
			break
		}
	}
	l.emit(fx)
}
