package rig

import (
	"fmt"
	"sync/atomic"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
)

// Engine is a real engine that counts what is asked of it.
type Engine struct {
	model.Engine
	Pool uint64

	steps, witnesses, reads, writes atomic.Int64

	before func(call string) error // see WorkerOptions
	claims int                     // see WorkerOptions
}

func (e *Engine) wait(call string) error {
	if e.before == nil {
		return nil
	}
	return e.before(call)
}

// Info implements model.Engine.
func (e *Engine) Info() model.Info {
	i := e.Engine.Info()
	i.Pages = max(i.Pages, e.claims)
	return i
}

// Zero implements model.Engine.
func (e *Engine) Zero(pages []page.ID) error {
	if err := e.wait("zero"); err != nil {
		return err
	}
	return e.Engine.Zero(pages)
}

// Steps is how many compute steps ran over the pages, witnesses of part (b) included.
func (e *Engine) Steps() int64 { return e.steps.Load() }

// Kernels is how many calls read the pages in any way: steps, witnesses, reads.
func (e *Engine) Kernels() int64 { return e.steps.Load() + e.witnesses.Load() + e.reads.Load() }

// Writes is how many frames were copied into the pages.
func (e *Engine) Writes() int64 { return e.writes.Load() }

// Step implements model.Engine.
func (e *Engine) Step(work []model.Work) ([]model.Result, error) {
	e.steps.Add(1)
	if err := e.wait("step"); err != nil {
		return nil, err
	}
	return e.Engine.Step(work)
}

// WitnessRows implements model.Engine.
func (e *Engine) WitnessRows(v page.View, tokens []int32, from int) (int, error) {
	e.witnesses.Add(1)
	if err := e.wait("witness"); err != nil {
		return 0, err
	}
	return e.Engine.WitnessRows(v, tokens, from)
}

// Read implements model.Engine.
func (e *Engine) Read(v page.View, r model.Range, dst []byte) ([]byte, error) {
	e.reads.Add(1)
	return e.Engine.Read(v, r, dst)
}

// Write implements model.Engine.
func (e *Engine) Write(g page.Grant, r model.Range, src []byte) error {
	e.writes.Add(1)
	if err := e.wait("write"); err != nil {
		return err
	}
	return e.Engine.Write(g, r, src)
}

// Stale is the first page of the whole pool that holds anything but zeros, or -1.
func (e *Engine) Stale() int {
	ids := make([]page.ID, e.Info().Pages)
	for i := range ids {
		ids[i] = page.ID(i)
	}
	return e.NonZero(ids)
}

// Sequence is one sequence of tokens over an engine's pages, without any service.
type Sequence struct {
	e      *Engine
	ledger *page.Ledger
	owner  page.Owner
	rows   int
}

// NewSequence takes the whole pool for one sequence of at most so many rows.
func (e *Engine) NewSequence(rows int, id byte) (*Sequence, error) {
	i := e.Info()
	s := &Sequence{e: e, ledger: page.NewLedger(e.Pool, i.Pages, i.PageSize), owner: page.Owner{Handoff: [16]byte{id}, Attempt: 1}}
	if _, err := s.ledger.Reserve(s.owner, rows); err != nil {
		return nil, err
	}
	_, err := s.ledger.Own(s.owner)
	return s, err
}

// Step appends tokens, in one step.
func (s *Sequence) Step(tokens []int32, pick *model.Picker, hidden bool) (model.Result, error) {
	v, err := s.ledger.View(s.owner)
	if err != nil {
		return model.Result{}, err
	}
	g, err := s.ledger.Grant(s.owner, s.rows, s.rows+len(tokens))
	if err != nil {
		return model.Result{}, err
	}
	res, err := s.e.Step([]model.Work{{View: v, Grant: g, Tokens: tokens, From: s.rows, Pick: pick, Hidden: hidden}})
	if err != nil {
		return model.Result{}, err
	}
	if err := s.ledger.Settle(g); err != nil {
		return model.Result{}, err
	}
	s.rows += len(tokens)
	_, err = s.ledger.Grow(s.owner, s.rows)
	return res[0], err
}

// Rows gives the stored bytes of rows [from, to) of layers [layerFrom, layerTo), as a frame holds them.
func (s *Sequence) Rows(layerFrom, layerTo, from, to int) ([]byte, error) {
	v, err := s.ledger.View(s.owner)
	if err != nil {
		return nil, err
	}
	return s.e.Read(v, model.Range{LayerFrom: layerFrom, LayerTo: layerTo, RowFrom: from, RowTo: to}, nil)
}

func (s *Sequence) answer(tok *model.Tokenizer, tokens []int32, maxTokens int) (Answer, error) {
	pick := model.NewPicker(kvtransfer.Sampling{Logprobs: -1}, tok, tokens, nil)
	var a Answer
	next := tokens
	for len(a.Tokens) < maxTokens {
		res, err := s.Step(next, pick, false)
		if err != nil {
			return a, fmt.Errorf("rig: solo: %d tokens out: %w", len(a.Tokens), err)
		}
		a.Tokens = append(a.Tokens, res.Token.ID)
		a.Text += string(res.Token.Text) + string(res.Held)
		if a.Finish = string(res.Finish); a.Finish != "" {
			return a, nil
		}
		next = []int32{res.Token.ID}
	}
	a.Text += string(pick.Flush())
	a.Finish = string(kvtransfer.FinishLength)
	return a, nil
}
