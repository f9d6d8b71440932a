package decode

import (
	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// startStep sends the next batch to the engine, unless one is out: sequences join and leave between steps.
func (l *Loop) startStep() {
	if len(l.step) > 0 {
		return
	}
	var cs []candidate
	for _, h := range l.settled().ready {
		cs = append(cs, candidate{Key: h.key(), Failures: h.failures, Stepped: h.stepped})
	}
	keys := planStep(cs, l.cfg.MaxBatch)
	if len(keys) == 0 {
		return
	}
	l.steps++
	l.count.Steps++
	work := make([]SeqWork, len(keys))
	for i, k := range keys {
		h, _ := l.get(k)
		w, err := l.work(h)
		if err != nil {
			l.bug("step: %v", err)
			return
		}
		h.stepped = l.steps
		work[i] = w
		l.step = append(l.step, seqOut{key: k, witness: w.Witness, grant: w.Grant})
	}
	l.do(Step{Work: work})
}

// work is what the next step does for a sequence. It takes a right that keeps the pages where they are until the step
// reports: a grant for row n, or, in a witness, which writes nothing, a hold.
func (l *Loop) work(h *handoff) (SeqWork, error) {
	o := h.key().Owner()
	v, err := l.ledger.View(o)
	if err != nil {
		return SeqWork{}, err
	}
	final := h.output+1 >= h.in.Reservation.MaxTokens
	if h.in.State == kvtransfer.InWitnessing {
		n := h.in.Reservation.N
		return SeqWork{
			Key: h.key(), View: v, Tokens: h.tokens[n-1 : n : n], From: n - 1, Last: final, Witness: true, Want: h.in.Hidden(),
			Start: &Picking{Sampling: h.sampling, Prompt: h.tokens[:h.prompt:h.prompt], Output: h.tokens[h.prompt:n:n]},
		}, l.ledger.Hold(o)
	}
	g, err := l.ledger.Grant(o, h.rows, h.rows+1)
	last := len(h.tokens)
	return SeqWork{Key: h.key(), View: v, Grant: g, Tokens: h.tokens[last-1 : last : last], From: h.rows, Last: final}, err
}

// back gives back the right that a sequence's part of a step held.
func (l *Loop) back(s seqOut) error {
	if s.witness {
		return l.ledger.Unhold(s.key.Owner())
	}
	return l.ledger.Settle(s.grant)
}

// onStep takes a step's results. Attempts that ended meanwhile only give their pages back.
func (l *Loop) onStep(e StepDone) {
	if l.broken(e.Err) {
		return
	}
	out := l.step
	l.step = nil
	if e.Err.IsZero() && len(e.Results) != len(out) {
		l.bug("step: %d sequences out, %d results", len(out), len(e.Results))
		return
	}
	if !e.Err.IsZero() {
		l.count.StepsFailed++
	}
	for i, s := range out {
		if err := l.back(s); err != nil {
			l.bug("step: %v", err)
			return
		}
		h, ok := l.get(s.key)
		switch {
		case !ok || h.in.State.Over():
		case !e.Err.IsZero():
			if h.failures++; h.failures >= maxFailures {
				l.end(h, e.Err)
			}
		case e.Results[i].Key != s.key:
			l.bug("step: result %d is of %s, not %s", i, e.Results[i].Key, s.key)
			return
		default:
			h.failures = 0
			l.result(h, s, e.Results[i])
		}
		if l.stopped {
			return
		}
	}
}

// result takes one sequence's result: of a witness, the comparison first; then the token.
func (l *Loop) result(h *handoff, s seqOut, r SeqResult) {
	if s.witness {
		h.in.WitnessedLast(r.Mismatch)
		l.do(Journal{Fact: l.fact(h, FactWitness)})
		if h.in.State.Over() {
			l.ended(h)
			return
		}
		h.told = true
		l.reply(h, kvtransfer.ReplyBody{Outcome: &kvtransfer.Outcome{OK: true, Prefill: h.in.Prefill}})
	} else {
		if _, err := l.ledger.Grow(s.key.Owner(), h.rows+1); err != nil {
			l.bug("grow: %v", err)
			return
		}
		h.rows++
	}
	h.tokens = append(h.tokens, r.Token.ID)
	h.output++
	l.count.Tokens++
	l.reply(h, kvtransfer.ReplyBody{Tokens: []kvtransfer.Token{r.Token}})
	h.finish, h.stop, h.held = r.Finish, r.Stop, r.Held
	if h.finish == "" && h.output >= h.in.Reservation.MaxTokens {
		h.finish = kvtransfer.FinishLength
	}
	if h.finish != "" {
		h.in.Finish()
		l.ended(h)
	}
}

// zeroReleased has pages cleared that nobody holds any more. They are Free only after that.
func (l *Loop) zeroReleased() {
	ids := l.ledger.TakeZeroing()
	if len(ids) > 0 {
		l.zeroing += len(ids)
		l.releases = append(l.releases, release{first: ids[0], at: l.now})
		l.do(Zero{Pages: ids})
	}
}

// onZeroed frees cleared pages. A device that cannot clear pages cannot be trusted with the next request.
func (l *Loop) onZeroed(e Zeroed) {
	if l.broken(e.Err) {
		return
	}
	if !e.Err.IsZero() {
		if l.zeroFail++; l.zeroFail >= maxFailures {
			l.stopped = true
			l.do(Stop{Err: e.Err})
			return
		}
		l.do(Zero{Pages: append([]page.ID(nil), e.Pages...)})
		return
	}
	l.zeroFail = 0
	l.zeroing -= len(e.Pages)
	if err := l.ledger.Zeroed(e.Pages); err != nil {
		l.bug("zero: %v", err)
		return
	}
	l.freed(e.Pages)
}
