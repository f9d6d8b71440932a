package router

import "quire/kvtransfer"

// replied takes one reply. Replies of other attempts are not in the table and are ignored.
func (l *Loop) replied(ev Replied) {
	a := l.attempts[ev.Key]
	if a == nil || ev.Number < a.next {
		l.stats.RepliesIgnored++
		return
	}
	a.heard = l.now
	if ev.Number > a.next {
		l.stats.ReplyGaps++
		if len(a.early) < maxEarly {
			a.early[ev.Number] = ev.Body
		}
		l.ask(a)
		return
	}
	l.apply(a, ev.Body)
	l.catchUp(a)
}

// catchUp applies replies that came before their turn.
func (l *Loop) catchUp(a *attempt) {
	for l.attempts[a.key] == a {
		body, ok := a.early[a.next]
		if !ok {
			return
		}
		l.apply(a, body)
	}
}

// apply takes the reply whose turn it is: an outcome, then tokens, then one end.
func (l *Loop) apply(a *attempt, body kvtransfer.ReplyBody) {
	number := a.next
	delete(a.early, number)
	a.next++
	if (number == 0) != (body.Outcome != nil) {
		l.lose(a, kvtransfer.Errorf(kvtransfer.WorkerLost, "router: reply %d of %s: outcome %t", number, a.key, body.Outcome != nil))
		return
	}
	if body.Outcome != nil {
		a.served = body.Outcome.Prefill
		if !body.Outcome.OK {
			l.failed(a, orBug(body.Outcome.Error))
			return
		}
		l.runs(a)
	}
	if !l.give(a, body.Tokens) || body.End == nil {
		return
	}
	l.ended(a, *body.End, number)
}

// runs takes a good outcome: from here on the client may see something, and the prefill slot is free.
func (l *Loop) runs(a *attempt) {
	a.phase = answering
	l.freePrefillSlot(a)
	if !a.req.started {
		a.req.started = true
		l.do(Begin{Ref: a.req.ref})
	}
}

// give passes on the tokens that the client does not have yet. It says whether the attempt goes on.
func (l *Loop) give(a *attempt, tokens []kvtransfer.Token) bool {
	r := a.req
	if a.again > 0 && len(tokens) > 0 { // the one token that is made a second time
		if want := r.output[a.resumed]; tokens[0].ID != want {
			l.close(a, false)
			l.finish(r, kvtransfer.End{Error: kvtransfer.Errorf(kvtransfer.WorkerLost,
				"router: the resumed answer differs from the first at output token %d", a.resumed)})
			return false
		}
		tokens, a.again = tokens[1:], 0
	}
	if len(tokens) == 0 {
		return true
	}
	if len(r.output)+len(tokens) > r.maxTokens {
		l.close(a, false)
		l.finish(r, kvtransfer.End{Error: kvtransfer.Errorf(kvtransfer.Invariant,
			"router: %d tokens from %s, asked for %d", len(r.output)+len(tokens), a.decode, r.maxTokens)})
		return false
	}
	for _, t := range tokens {
		r.output = append(r.output, t.ID)
	}
	l.stats.OutputTokens += uint64(len(tokens))
	l.do(Give{Ref: r.ref, Tokens: tokens})
	return true
}

// ended takes the last reply.
func (l *Loop) ended(a *attempt, end kvtransfer.End, number uint32) {
	switch {
	case !end.Error.IsZero():
		l.failed(a, end.Error)
	case end.Finish == "":
		l.failed(a, orBug(end.Error))
	case end.Replies != number+1:
		l.lose(a, kvtransfer.Errorf(kvtransfer.WorkerLost, "router: the end of %s counts %d replies, %d came", a.key, end.Replies, number+1))
	default:
		r := a.req
		l.close(a, true)
		end.Prompt, end.Output = len(r.prompt), max(end.Output, len(r.output))
		l.finish(r, end)
	}
}

// orBug keeps a failure without a code from reading as success.
func orBug(err kvtransfer.Error) kvtransfer.Error {
	if err.IsZero() {
		return kvtransfer.Errorf(kvtransfer.Invariant, "router: decode reported a failure without a code")
	}
	return err
}

// ask wants the replies again from the next number on. One such request is out at a time.
func (l *Loop) ask(a *attempt) {
	if a.asking {
		a.behind = true
		return
	}
	a.asking, a.behind = true, false
	l.stats.Resends++
	l.do(AskResend{Key: a.key, To: a.decode, From: a.next})
}

// resent takes decode's answer to a resend, or its silence.
func (l *Loop) resent(ev Resent) {
	if c := l.closing[ev.Key]; c != nil {
		l.acknowledged(c, ev)
		return
	}
	a := l.attempts[ev.Key]
	if a == nil || !a.asking {
		return
	}
	a.asking = false
	if ev.Err != FaultNone {
		a.unanswered++
		a.heard = l.now // asked again after one more silence
		if a.unanswered >= maxTries {
			l.lose(a, kvtransfer.Errorf(kvtransfer.WorkerLost, "router: %s did not answer %d resends: %s", a.decode, a.unanswered, ev.Err))
		}
		return
	}
	a.unanswered, a.heard = 0, l.now
	if !ev.Known {
		l.lose(a, kvtransfer.Errorf(kvtransfer.WorkerLost, "router: %s does not know %s any more", a.decode, a.key))
		return
	}
	for _, r := range ev.Replies {
		if l.attempts[a.key] == a && r.Number == a.next {
			l.apply(a, r.Body)
			l.catchUp(a)
		}
	}
	if l.attempts[a.key] == a && a.next < ev.Next && (a.behind || len(ev.Replies) > 0) {
		l.ask(a)
	}
}
