package replay

import (
	"errors"
	"fmt"

	"quire/decode"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model"
	"quire/tape"
)

// RunFrames runs decode's side of an attempt alone, from what the tape has of it: the same machine takes the claim, opens every
// frame under the attempt's key, copies it into fresh pages, asks the gate and the witness, and only then chooses tokens. Time
// stands still: that the lease was alive then is a fact of the past.
func (m Machine) RunFrames(a tape.Attempt) (Rerun, error) {
	out := Rerun{From: FromFrames, At: -1, LogitsAt: -1, Prompt: a.Head.Prompt}
	p, err := newPlayer(m, a)
	if err != nil {
		return out, err
	}
	info := p.seq.engine.Info()
	theirs, ours := p.in.Reservation.Fingerprints, info.Fingerprints
	out.Compute, out.Same = fmt.Sprintf("%x", ours.Compute[:]), theirs.Compute == ours.Compute
	switch {
	case a.End == nil:
		return out.not("the tape has no end of this attempt: decode died, or the tape was full"), nil
	case theirs.Model != ours.Model:
		return out.not("it was answered by %s, fingerprint %x; this is %s, %x", a.Head.Model, theirs.Model[:4], m.Source.Name, ours.Model[:4]), nil
	case theirs.Layout != ours.Layout:
		return out.not("its pages have layout %x, those of this machine %x: is --kv-type that of the cluster?", theirs.Layout[:4], ours.Layout[:4]), nil
	case !out.Same:
		return out.not("its arithmetic has fingerprint %x, this machine's %x: the witness compares bit for bit", theirs.Compute[:4], ours.Compute[:4]), nil
	}
	out.Output = len(a.End.Output)
	if a.End.Judged {
		out.GateRecorded = verdict(a.End.OK, a.End.Check, a.End.Error)
	}
	if err := p.receive(&out); err != nil {
		return out, err
	}
	switch {
	case a.End.Judged && timely[a.End.Check]:
		return out.not("the gate refused it by %s: time does not come again: %s", a.End.Check, a.End.Error.Detail), nil
	case out.Gate == "" && out.GateRecorded == "":
		return out.not("it ended with %s before the gate was asked: %s", a.End.Error.Code, a.End.Error.Detail), nil
	case out.Gate != out.GateRecorded:
		out.Verdict, out.Why = Diverges, "the gate says something else"
		return out, nil
	case !p.verdict.OK:
		out.Verdict = Identical
		return out, nil
	}
	c := &comparison{want: a.End.Output, choices: a.End.Choices}
	if err := p.decode(c, &out); err != nil {
		return out, err
	}
	if was, is := a.End.Error.Code == kvtransfer.HandoffWitness, p.in.State.Over(); was || is {
		out.Verdict = Identical
		if was != is {
			out.Verdict, out.Why = Diverges, "the witness says something else"
		}
		return out, nil
	}
	return c.judge(out), nil
}

// timely are the checks of the gate that look at clocks, and at what changes with them.
var timely = map[string]bool{"lease": true, "epoch": true, "page generations": true, "copy": true}

// admitted is what the gate says when it says yes.
const admitted = "admitted"

// verdict is a gate's decision in words.
func verdict(ok bool, check string, err kvtransfer.Error) string {
	if ok {
		return admitted
	}
	return fmt.Sprintf("refused by %s: %s: %s", check, err.Code, err.Detail)
}

// player has one attempt's messages go through decode's machine once more.
type player struct {
	in        *kvtransfer.Inbound
	seq       *sequence
	a         tape.Attempt
	key       [32]byte
	tokenizer *model.Tokenizer
	judge     kvtransfer.Judge
	verdict   kvtransfer.Verdict
	judged    bool
}

func newPlayer(m Machine, a tape.Attempt) (*player, error) {
	in, err := inbound(a)
	if err != nil {
		return nil, err
	}
	r := in.Reservation
	if r.PageSize < 1 || r.PageSize > maxPageSize || r.N+r.MaxTokens > m.Source.Config.Context+1 {
		return nil, fmt.Errorf("replay: attempt %s: %d + %d tokens in pages of %d, context %d", a.Key, r.N, r.MaxTokens, r.PageSize, m.Source.Config.Context)
	}
	seq, _, err := m.sequence(r.N+r.MaxTokens, r.PageSize)
	if err != nil {
		return nil, err
	}
	p := &player{in: in, seq: seq, a: a, tokenizer: m.Source.Tokenizer, judge: kvtransfer.Judge{Decode: r.Decode, Engine: seq.engine.Info().Fingerprints, Pages: r.Pages}}
	copy(p.key[:], a.Head.FrameKey)
	return p, seq.ledger.Fill(seq.owner)
}

// inbound is decode's machine of a recorded attempt, claimed.
func inbound(a tape.Attempt) (*kvtransfer.Inbound, error) {
	r, err := wire.Decode[kvtransfer.Reservation](a.Head.Reservation)
	if err != nil {
		return nil, fmt.Errorf("replay: attempt %s: %w", a.Key, err)
	}
	claim, err := wire.Decode[kvtransfer.Claim](a.Head.Claim)
	if err != nil {
		return nil, fmt.Errorf("replay: attempt %s: %w", a.Key, err)
	}
	if r.Key != a.Key || r.N < 1 || len(a.Head.Tokens) != r.N || a.Head.Prompt < 1 || a.Head.Prompt > r.N || len(a.Head.FrameKey) != 32 || a.Head.Shape.Layers < 1 {
		return nil, fmt.Errorf("replay: attempt %s: its head is of %s, %d tokens of %d, prompt %d", a.Key, r.Key, len(a.Head.Tokens), r.N, a.Head.Prompt)
	}
	start := a.Head.LeaseStart
	in := kvtransfer.NewInbound(r, seal.HashReservation(a.Head.Reservation), a.Head.Shape, kvtransfer.NewLease(start, r.Lease, a.Head.Deadline-start))
	if answer, err := in.Claim(a.Head.Prefill, claim, start); answer != kvtransfer.ClaimBound {
		return nil, fmt.Errorf("replay: attempt %s: its claim does not bind it: %s", a.Key, err.Detail)
	}
	return in, nil
}

// receive takes every part, up to the verdict.
func (p *player) receive(out *Rerun) error {
	for _, part := range p.a.Parts {
		if p.judged || p.in.State.Over() {
			break
		}
		var err error
		if part.Frame != nil {
			out.Frames++
			err = p.frame(part.Frame)
		} else {
			err = p.manifest(*part.Manifest)
		}
		if err != nil {
			return fmt.Errorf("replay: attempt %s: part %d: %w", p.a.Key, part.Number, err)
		}
		if p.in.Ready() {
			p.judged, p.verdict = true, p.in.Gate(p.judge, p.a.Head.LeaseStart)
		}
	}
	if p.judged {
		out.Gate = verdict(p.verdict.OK, p.verdict.Check, p.verdict.Error)
	}
	return nil
}

// frame opens a frame as decode did, and copies it into the pages.
func (p *player) frame(b []byte) error {
	f, err := wire.DecodeFrame(b)
	if err != nil {
		return err
	}
	now, h, tag := p.a.Head.LeaseStart, f.Header, seal.Tag(f.Sealed)
	if p.in.Frame(h, tag, now) != kvtransfer.FrameOpen {
		return nil
	}
	ev := decode.OpenSealed(decode.OpenFrame{Header: h, Tag: tag, Sealed: f.Sealed, FrameKey: p.key, Hash: p.in.Hash})
	answer, refused := p.in.Opened(h, tag, ev.Opening, now)
	switch answer {
	case kvtransfer.OpenCorrupt:
		p.judged, p.verdict = true, kvtransfer.Verdict{Check: "frame", Error: refused}
		return nil
	case kvtransfer.OpenCopy:
	default:
		return nil
	}
	g, err := p.seq.ledger.Grant(p.seq.owner, h.RowFrom, h.RowTo)
	if err != nil {
		return err
	}
	r := model.Range{LayerFrom: h.LayerFrom, LayerTo: h.LayerTo, RowFrom: h.RowFrom, RowTo: h.RowTo}
	if err := errors.Join(p.seq.engine.Write(g, r, ev.Plain), p.seq.ledger.Settle(g)); err != nil {
		return err
	}
	p.in.Copied(h.Index, kvtransfer.Error{}, now)
	return nil
}

func (p *player) manifest(m tape.Manifest) error {
	s, err := wire.Decode[kvtransfer.Manifest](m.Body)
	if err != nil {
		return err
	}
	if answer, v := p.in.Manifest(m.From, s, p.judge, p.a.Head.LeaseStart); answer == kvtransfer.ManifestCorrupt {
		p.judged, p.verdict = true, v
	}
	return nil
}

// decode runs the witness over admitted pages, and chooses tokens if it agrees.
func (p *player) decode(c *comparison, out *Rerun) error {
	s, r, t := p.seq, p.in.Reservation, p.a.Head
	p.in.Journaled(kvtransfer.Error{})
	view, err := s.ledger.Admit(s.owner, r.N)
	if err != nil {
		return err
	}
	p.in.Witness()
	row, err := s.engine.WitnessRows(view, t.Tokens[r.C:r.N], r.C)
	if err != nil {
		return err
	}
	p.in.WitnessedRows(row)
	if !p.in.State.Over() {
		pick := c.picker(t.Sampling, p.tokenizer, t.Tokens[:t.Prompt], t.Tokens[t.Prompt:])
		res, err := s.engine.Step([]model.Work{{View: view, Tokens: t.Tokens[r.N-1:], From: r.N - 1, Pick: pick, Witness: true, Want: p.in.Hidden()}})
		if err != nil {
			return err
		}
		p.in.WitnessedLast(res[0].Mismatch)
		if !p.in.State.Over() {
			out.Witness = "agreed"
			s.rows = r.N
			if len(c.want) == 0 {
				return nil
			}
			if c.add(res[0]); res[0].Finish != "" {
				return nil
			}
			return s.more([]int32{res[0].Token.ID}, pick, c)
		}
	}
	out.Witness = "refused: " + p.in.Err.Detail
	return nil
}
