package bench

import (
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
)

// pool is one engine and the ledger of its pages.
type pool struct {
	engine model.Engine
	ledger *page.Ledger
	owners uint32
}

func newPool(e model.Engine, number uint64) *pool {
	i := e.Info()
	return &pool{engine: e, ledger: page.NewLedger(number, i.Pages, i.PageSize)}
}

// sequence is one request that is computed here, without services.
type sequence struct {
	owner page.Owner
	view  page.View
	rows  int
	last  int32
	pick  *model.Picker
}

// open reserves pages for a sequence of so many rows. Its answer does not end early.
func (p *pool) open(tok *model.Tokenizer, prompt []int32, rows int) (*sequence, error) {
	p.owners++
	s := &sequence{owner: page.Owner{Attempt: p.owners}}
	if _, err := p.ledger.Reserve(s.owner, rows); err != nil {
		return nil, err
	}
	var err error
	if s.view, err = p.ledger.Own(s.owner); err != nil {
		return nil, err
	}
	s.pick = model.NewPicker(kvtransfer.Sampling{Logprobs: -1, IgnoreEOS: true}, tok, prompt, nil)
	return s, nil
}

// step computes the next rows of every sequence in one batch, and a token for each where pick is set.
func (p *pool) step(seqs []*sequence, tokens [][]int32, pick bool) error {
	work := make([]model.Work, len(seqs))
	for i, s := range seqs {
		g, err := p.ledger.Grant(s.owner, s.rows, s.rows+len(tokens[i]))
		if err != nil {
			return err
		}
		work[i] = model.Work{View: s.view, Grant: g, Tokens: tokens[i], From: s.rows}
		if pick {
			work[i].Pick = s.pick
		}
	}
	results, err := p.engine.Step(work)
	if err != nil {
		return err
	}
	for i, s := range seqs {
		if err := p.ledger.Settle(work[i].Grant); err != nil {
			return err
		}
		s.rows += len(tokens[i])
		s.last = results[i].Token.ID
		if s.view, err = p.ledger.Grow(s.owner, s.rows); err != nil {
			return err
		}
	}
	return nil
}

// prefill computes a prompt in chunks; the last one chooses a token.
func (p *pool) prefill(s *sequence, prompt []int32, chunk int) error {
	for len(prompt) > 0 {
		n := min(chunk, len(prompt))
		if err := p.step([]*sequence{s}, [][]int32{prompt[:n]}, n == len(prompt)); err != nil {
			return err
		}
		prompt = prompt[n:]
	}
	return nil
}

// close gives a sequence's pages back, zeroed.
func (p *pool) close(s *sequence) error {
	if err := p.ledger.Release(s.owner); err != nil {
		return err
	}
	ids := p.ledger.TakeZeroing()
	if err := p.engine.Zero(ids); err != nil {
		return err
	}
	return p.ledger.Zeroed(ids)
}

// story gives n token ids of a vocabulary, the same for the same seed; ids below 3 are left to the model's own marks.
func story(n, vocab int, seed uint32) []int32 {
	out := make([]int32, n)
	x := seed*2654435761 + 1
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = int32(3 + int(x>>8)%max(1, vocab-3))
	}
	return out
}
