package decode

import (
	"quire/kvtransfer"
)

// onFrame decides what a frame is worth opening for. Its header may be anybody's: nothing changes before it has opened.
func (l *Loop) onFrame(e FrameCame) {
	h, ok := l.get(e.Header.Key)
	answer := kvtransfer.FrameRefuse
	if ok {
		answer = h.in.Frame(e.Header, e.Tag, l.now)
	}
	switch answer {
	case kvtransfer.FrameOpen:
		l.tape(h, Tape{Frame: &kvtransfer.Frame{Header: e.Header, Sealed: e.Sealed}})
		l.do(OpenFrame{
			Delivery: e.Delivery, Header: e.Header, Tag: e.Tag, Sealed: e.Sealed, FrameKey: h.frameKey, Hash: h.in.Hash,
		})
	case kvtransfer.FrameIgnore:
		h.repeated++
		l.count.FramesRepeated++
		l.do(Ack{Delivery: e.Delivery})
	default:
		l.count.FramesRefused++
		l.turnedAway(h, "frame", e.Header.Index, kvtransfer.Error{})
		l.do(Term{Delivery: e.Delivery})
	}
}

// onOpened has an opened frame copied into its owner's pages, under a grant that keeps them from changing hands meanwhile.
func (l *Loop) onOpened(e FrameOpened) {
	h, ok := l.get(e.Header.Key)
	answer := kvtransfer.OpenCount
	if ok && h.in.Hash == e.Hash {
		answer, _ = h.in.Opened(e.Header, e.Tag, e.Opening, l.now)
	}
	switch answer {
	case kvtransfer.OpenCopy:
		l.copyFrame(h, e)
	case kvtransfer.OpenIgnore:
		h.repeated++
		l.count.FramesRepeated++
		l.do(Ack{Delivery: e.Delivery})
	case kvtransfer.OpenCorrupt:
		l.do(Term{Delivery: e.Delivery})
		l.refused(h, kvtransfer.Verdict{Check: "frame", Error: h.in.Err})
	default:
		if e.Opening.OK {
			l.count.FramesRefused++
			l.turnedAway(h, "frame", e.Header.Index, kvtransfer.Error{})
		} else {
			l.count.FramesUnopened++
			l.turnedAway(h, "unopened", e.Header.Index, kvtransfer.Error{})
		}
		l.do(Term{Delivery: e.Delivery})
	}
}

func (l *Loop) copyFrame(h *handoff, e FrameOpened) {
	g, err := l.ledger.Grant(h.key().Owner(), e.Header.RowFrom, e.Header.RowTo)
	if err == nil {
		err = l.ledger.Check(g)
	}
	if err != nil {
		l.bug("copy: %v", err)
		return
	}
	l.do(CopyFrame{Delivery: e.Delivery, Header: e.Header, Grant: g, Plain: e.Plain})
}

// onCopied gives the grant back and, once the manifest and all its frames are there, asks the gate. A copy that ended after
// its attempt did changes nothing: its pages waited for it and are zeroed now.
func (l *Loop) onCopied(e FrameCopied) {
	if l.broken(e.Err) {
		return
	}
	h, ok := l.get(e.Header.Key)
	err := e.Err
	if ok && !h.in.State.Over() && err.IsZero() {
		if stale := l.ledger.Check(e.Grant); stale != nil {
			err = kvtransfer.Errorf(kvtransfer.HandoffTime, "copy: %v", stale)
		}
	}
	if settle := l.ledger.Settle(e.Grant); settle != nil {
		l.bug("copy: %v", settle)
		return
	}
	l.do(Ack{Delivery: e.Delivery})
	if !ok {
		return
	}
	over := h.in.State.Over()
	h.in.Copied(e.Header.Index, err, l.now)
	switch {
	case over:
		return
	case h.in.State.Over():
		l.refused(h, kvtransfer.Verdict{Check: "copy", Error: err})
		return
	}
	l.count.FramesCopied++
	if h.firstAt == 0 {
		h.firstAt = l.now
	}
	l.judge(h)
}

// onManifest takes prefill's statement; a contradiction ends the attempt at once.
func (l *Loop) onManifest(e ManifestCame) {
	h, ok := l.get(e.M.Key)
	if !ok || e.From.Role != kvtransfer.RolePrefill {
		l.count.ManifestsRefused++
		l.turnedAway(h, "manifest", 0, kvtransfer.Error{})
		l.do(Term{Delivery: e.Delivery})
		return
	}
	answer, v := h.in.Manifest(e.From, e.M, l.judgement(h), l.now)
	if answer == kvtransfer.ManifestTaken || answer == kvtransfer.ManifestCorrupt {
		l.tape(h, Tape{Manifest: &e.M, From: e.From})
	}
	if h.in.Stated != nil && h.statedAt == 0 {
		h.statedAt = l.now
	}
	switch answer {
	case kvtransfer.ManifestTaken:
		l.do(Ack{Delivery: e.Delivery})
		l.judge(h)
	case kvtransfer.ManifestIgnore:
		l.do(Ack{Delivery: e.Delivery})
	case kvtransfer.ManifestCorrupt:
		l.do(Term{Delivery: e.Delivery})
		l.refused(h, v)
	default:
		l.count.ManifestsRefused++
		l.turnedAway(h, "manifest", 0, kvtransfer.Error{})
		l.do(Term{Delivery: e.Delivery})
	}
}

// judgement is what this process adds to the evidence: who it is and what the ledger says now.
func (l *Loop) judgement(h *handoff) kvtransfer.Judge {
	_, slots := l.ledger.Reserved(h.key().Owner())
	return kvtransfer.Judge{Decode: l.cfg.Self, Engine: l.cfg.Info.Fingerprints, Pages: slots}
}

// judge asks the gate once everything is there. A yes goes to the journal first: no kernel before it has acknowledged.
func (l *Loop) judge(h *handoff) {
	if !h.in.Ready() {
		return
	}
	if err := h.in.Late(l.now); !err.IsZero() {
		l.end(h, err)
		return
	}
	v := h.in.Gate(l.judgement(h), l.now)
	h.judged, h.verdict = true, v
	if !v.OK {
		l.refused(h, v)
		return
	}
	f := l.fact(h, FactVerdict)
	f.OK = true
	l.do(Journal{Fact: f, Must: true})
}

// refused records a verdict of no, or the failure that made one needless, and ends the attempt, whose machine is over.
func (l *Loop) refused(h *handoff, v kvtransfer.Verdict) {
	h.judged, h.verdict = true, v
	f := l.fact(h, FactVerdict)
	f.Check, f.Error = v.Check, v.Error
	l.do(Journal{Fact: f})
	l.ended(h)
}

// onJournaled admits the pages: from here on kernels may read rows [0, N). The witness reads first.
func (l *Loop) onJournaled(e Journaled) {
	h, ok := l.get(e.Key)
	if !ok || h.in.State != kvtransfer.InJudging || h.in.Hash != e.Reservation {
		return
	}
	err := e.Err
	if !err.IsZero() && l.cfg.JournalOptional {
		l.count.Unjournaled++
		h.unjournaled = true
		err = kvtransfer.Error{}
	}
	if !h.in.Journaled(err) {
		l.ended(h)
		return
	}
	if _, err := l.ledger.Admit(e.Key.Owner(), h.in.Reservation.N); err != nil {
		l.bug("admit: %v", err)
		return
	}
	l.count.Admitted++
	h.owned, h.ownedAt = true, l.now
	h.in.Witness()
	l.witness(h)
}

// witness has layer 0 of every received row recomputed from the prompt's token ids.
func (l *Loop) witness(h *handoff) {
	o, r := h.key().Owner(), h.in.Reservation
	v, err := l.ledger.View(o)
	if err == nil {
		err = l.ledger.Hold(o)
	}
	if err != nil {
		l.bug("witness: %v", err)
		return
	}
	l.do(Witness{Key: h.key(), View: v, Tokens: h.tokens[r.C:r.N:r.N], From: r.C})
}

// onWitness takes part (a) of the witness; part (b) is the sequence's first step.
func (l *Loop) onWitness(e WitnessDone) {
	if l.broken(e.Err) {
		return
	}
	if err := l.ledger.Unhold(e.Key.Owner()); err != nil {
		l.bug("witness: %v", err)
		return
	}
	h, ok := l.get(e.Key)
	if !ok || h.in.State != kvtransfer.InWitnessing {
		return
	}
	if !e.Err.IsZero() {
		if h.failures++; h.failures < maxFailures {
			l.witness(h)
		} else {
			l.end(h, e.Err)
		}
		return
	}
	h.failures = 0
	h.in.WitnessedRows(e.Row)
	if h.in.State.Over() {
		l.do(Journal{Fact: l.fact(h, FactWitness)})
		l.ended(h)
	}
}

// onStreamLost ends the attempts whose frames may have been lost. One that nobody has claimed has none yet.
func (l *Loop) onStreamLost() {
	for _, h := range l.oldestFirst() {
		if h.in.State == kvtransfer.InFilling {
			l.end(h, kvtransfer.Errorf(kvtransfer.WorkerLost, "decode: the KV stream was lost with %d frames received", len(h.in.Frames())))
		}
	}
}
