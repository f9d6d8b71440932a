package sim

import (
	"fmt"
	"slices"

	"quire/decode"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/prefill"
)

// How a pair's effects become what can happen next.

func requestOf(k kvtransfer.Key) int { return int(k.ID[0]) - 1 }

// prefill gives the loop an event and keeps its effects.
func (p *pair) prefill(ev prefill.Event) error {
	for _, fx := range p.pre.Handle(ev) {
		switch fx := fx.(type) {
		case prefill.PullJob:
			if !fx.Direct {
				p.pulls++
			}
		case prefill.SendClaim:
			p.toDecode(fmt.Sprintf("claim %d", requestOf(fx.Msg.Key)), decode.ClaimCame{From: smallWorker, M: fx.Msg})
		case prefill.SendProgress:
			p.toDecode(fmt.Sprintf("progress %d", requestOf(fx.Msg.Key)), decode.ProgressCame{From: smallWorker, M: fx.Msg})
		case prefill.SendAbort:
			p.toDecode(fmt.Sprintf("abort %d", requestOf(fx.Msg.Key)), decode.AbortCame{From: smallWorker, M: fx.Msg})
		case prefill.Compute:
			p.add(pairItem{text: fmt.Sprintf("compute %d", fx.Step), device: true, run: func(p *pair, fails bool) error { return p.compute(fx, fails) }})
		case prefill.SealAndSend:
			p.add(pairItem{text: fmt.Sprintf("seal %d.%d", requestOf(fx.Frame.Key), fx.Frame.Index), device: true,
				run: func(p *pair, fails bool) error { return p.sendFrame(fx, fails) }})
		case prefill.SendManifest:
			x := requestOf(fx.Msg.Key)
			p.add(pairItem{text: fmt.Sprintf("manifest %d", x), travels: true, kv: true, run: func(p *pair, _ bool) error {
				return p.decode(decode.ManifestCame{From: smallWorker, M: fx.Msg})
			}})
			p.add(pairItem{text: fmt.Sprintf("manifest stored %d", x), run: func(p *pair, _ bool) error {
				return p.prefill(prefill.ManifestStored{Key: fx.Msg.Key, Claim: fx.Msg.Claim})
			}})
		case prefill.Zero:
			ids := slices.Clone(fx.Pages)
			p.add(pairItem{text: fmt.Sprintf("prefill zero %v", ids), run: func(p *pair, _ bool) error {
				wipe(p.preBytes, ids)
				return p.prefill(prefill.Zeroed{Pages: slices.Clone(ids)})
			}})
		case prefill.Halt:
			return fx.Error
		}
	}
	return p.pre.Verify()
}

func (p *pair) toDecode(text string, ev decode.Event) {
	p.add(pairItem{text: text, travels: true, run: func(p *pair, _ bool) error { return p.decode(ev) }})
}

func wipe(rows []int, ids []page.ID) {
	for _, id := range ids {
		clear(rows[int(id)*smallSize : (int(id)+1)*smallSize])
	}
}

// at is one row of an owner.
func at(rows []int, slot func(int) page.Slot, row int) *int {
	return &rows[int(slot(row/smallSize).Page)*smallSize+row%smallSize]
}

// own says whether rows [0, n) are a request's.
func own(rows []int, slot func(int) page.Slot, n, x int) error {
	for row := range n {
		if got := *at(rows, slot, row); got != x+1 {
			return fmt.Errorf("request %d reads row %d, which is %d's", x, row, got-1)
		}
	}
	return nil
}

// put writes a row that must be clean.
func put(rows []int, slot func(int) page.Slot, row, x int) error {
	r := at(rows, slot, row)
	if *r != 0 {
		return fmt.Errorf("request %d writes row %d where %d is", x, row, *r-1)
	}
	*r = x + 1
	return nil
}

func (p *pair) compute(fx prefill.Compute, fails bool) error {
	done := prefill.ChunkDone{Step: fx.Step}
	if fails {
		done.Err = errDevice
		return p.prefill(done)
	}
	for _, w := range fx.Work {
		x := int(w.Grant.Owner().Handoff[0]) - 1
		if err := own(p.preBytes, w.View.Slot, w.From, x); w.From > 0 && err != nil {
			return err
		}
		for i := range w.Tokens {
			if err := put(p.preBytes, w.Grant.Slot, w.From+i, x); err != nil {
				return err
			}
		}
		var hidden []float32
		if w.Hidden {
			hidden = []float32{1}
		}
		done.Hidden = append(done.Hidden, hidden)
	}
	return p.prefill(done)
}

// sendFrame seals; the frame and the stream's acknowledgement travel from there.
func (p *pair) sendFrame(fx prefill.SealAndSend, fails bool) error {
	x, h := requestOf(fx.Frame.Key), fx.Header
	if fails {
		return p.prefill(prefill.FrameFailed{Frame: fx.Frame, Error: kvtransfer.Errorf(kvtransfer.DeviceFailed, "read")})
	}
	if err := own(p.preBytes, fx.View.Slot, h.RowTo, x); err != nil {
		return err
	}
	plain := make([]byte, 4*(h.RowTo-h.RowFrom))
	plain[0] = byte(x + 1)
	data, tag := prefill.SealFrame(fx, plain)
	ev, err := decode.OpenKV(ring{}, data)
	if err != nil {
		return err
	}
	p.add(pairItem{text: fmt.Sprintf("frame %d.%d", x, h.Index), travels: true, kv: true, run: func(p *pair, _ bool) error { return p.decode(ev) }})
	p.add(pairItem{text: fmt.Sprintf("frame stored %d.%d", x, h.Index), run: func(p *pair, _ bool) error {
		return p.prefill(prefill.FrameStored{Frame: fx.Frame, Tag: tag})
	}})
	return p.prefill(prefill.FrameSealed{Frame: fx.Frame})
}

// decode gives the loop an event and keeps its effects.
func (p *pair) decode(ev decode.Event) error {
	for _, fx := range p.dec.Handle(ev) {
		if err := p.decodeEffect(fx); err != nil {
			return err
		}
	}
	return p.dec.Verify()
}

func (p *pair) decodeEffect(fx decode.Effect) error {
	device := func(text string, run func(p *pair, fails bool) error) {
		p.add(pairItem{text: text, device: true, run: run})
	}
	switch e := fx.(type) {
	case decode.Reserved:
		return p.reserved(e)
	case decode.Refused:
		return e.M.Error
	case decode.Control:
		p.toPrefill(e)
	case decode.OpenFrame:
		p.add(pairItem{text: fmt.Sprintf("open %d.%d", requestOf(e.Header.Key), e.Header.Index), run: func(p *pair, _ bool) error { return p.decode(decode.OpenSealed(e)) }})
	case decode.CopyFrame:
		device(fmt.Sprintf("copy %d.%d", requestOf(e.Header.Key), e.Header.Index), func(p *pair, fails bool) error { return p.copyFrame(e, fails) })
	case decode.Journal:
		if e.Must {
			p.add(pairItem{text: fmt.Sprintf("journal %d", requestOf(e.Fact.Key)), journal: true, run: func(p *pair, fails bool) error {
				ev := decode.Journaled{Key: e.Fact.Key, Reservation: e.Fact.Reservation}
				if fails {
					ev.Err = kvtransfer.Errorf(kvtransfer.JournalDown, "no")
				}
				return p.decode(ev)
			}})
		}
	case decode.Witness:
		device(fmt.Sprintf("witness %d", requestOf(e.Key)), func(p *pair, fails bool) error {
			if err := own(p.decBytes, e.View.Slot, pairRows, requestOf(e.Key)); err != nil {
				return err
			}
			return p.decode(decode.WitnessDone{Key: e.Key, Row: -1, Err: pairError(fails)})
		})
	case decode.Step:
		text := "step"
		for _, w := range e.Work {
			text += fmt.Sprintf(" %d(%t)", requestOf(w.Key), w.Witness)
		}
		device(text, func(p *pair, fails bool) error { return p.step(e, fails) })
	case decode.SendReply:
		p.reply(e)
	case decode.Zero:
		ids := slices.Clone(e.Pages)
		p.add(pairItem{text: fmt.Sprintf("decode zero %v", ids), run: func(p *pair, _ bool) error {
			wipe(p.decBytes, ids)
			p.held -= len(ids)
			return p.decode(decode.Zeroed{Pages: slices.Clone(ids)})
		}})
	case decode.Stop:
		return e.Err
	}
	return nil
}

func pairError(fails bool) kvtransfer.Error {
	if fails {
		return kvtransfer.Errorf(kvtransfer.DeviceFailed, "broken")
	}
	return kvtransfer.Error{}
}

func (p *pair) reserved(e decode.Reserved) error {
	x := requestOf(e.M.Key)
	for _, slot := range e.M.Pages {
		if rows := p.decBytes[int(slot.Page)*smallSize : (int(slot.Page)+1)*smallSize]; slices.Max(rows) != 0 {
			return fmt.Errorf("page %d is promised and holds %v", slot.Page, rows)
		}
	}
	p.slots[x] = e.M.Pages
	p.held += len(e.M.Pages)
	job := prefill.Job{Reservation: e.M, Hash: seal.HashReservation(e.Body), Tokens: pairPrompt[x]}
	p.add(pairItem{text: fmt.Sprintf("job %d", x), travels: true, run: func(p *pair, _ bool) error {
		if p.pulls > 0 {
			p.pulls--
		}
		return p.prefill(job)
	}})
	return nil
}

func (p *pair) toPrefill(e decode.Control) {
	var ev prefill.Event
	switch m := e.M.(type) {
	case kvtransfer.Claimed:
		ev = prefill.Claimed{From: smallDecode, Msg: m}
	case kvtransfer.Gone:
		ev = prefill.Gone{From: smallDecode, Msg: m}
	case kvtransfer.Cancel:
		ev = prefill.Cancel{From: smallDecode, Msg: m}
	}
	p.add(pairItem{text: fmt.Sprintf("to prefill %T %d", e.M, requestOf(e.Key)), travels: true, run: func(p *pair, _ bool) error { return p.prefill(ev) }})
}

func (p *pair) copyFrame(e decode.CopyFrame, fails bool) error {
	if !fails {
		for row := e.Header.RowFrom; row < e.Header.RowTo; row++ {
			if err := put(p.decBytes, e.Grant.Slot, row, int(e.Plain[0])-1); err != nil {
				return err
			}
		}
	}
	return p.decode(decode.FrameCopied{Header: e.Header, Grant: e.Grant, Err: pairError(fails)})
}

func (p *pair) step(e decode.Step, fails bool) error {
	done := decode.StepDone{Err: pairError(fails)}
	if fails {
		return p.decode(done)
	}
	for _, w := range e.Work {
		x := requestOf(w.Key)
		if err := own(p.decBytes, w.View.Slot, w.View.Rows(), x); err != nil {
			return err
		}
		if !w.Witness {
			if err := put(p.decBytes, w.Grant.Slot, w.From, x); err != nil {
				return err
			}
		}
		done.Results = append(done.Results, decode.SeqResult{Key: w.Key, Token: kvtransfer.Token{ID: 1}})
	}
	return p.decode(done)
}

// reply notes an end; the router acknowledges it some time later.
func (p *pair) reply(e decode.SendReply) {
	x := requestOf(e.Header.Key)
	if e.Body.End == nil && (e.Body.Outcome == nil || e.Body.Outcome.OK) {
		return
	}
	p.ends[x]++
	p.served[x] = e.Body.End != nil && e.Body.End.Error.IsZero()
	p.add(pairItem{text: fmt.Sprintf("acknowledge %d", x), run: func(p *pair, _ bool) error {
		return p.decode(decode.ResendAsked{From: pairRouter, M: kvtransfer.Resend{Key: smallKey(x), Ack: true}})
	}})
}
