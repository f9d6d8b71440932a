package model_test

import (
	"testing"

	"quire/device"
	"quire/device/cpu"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
)

// rig is a model on a device with one engine and its ledger.
type rig struct {
	t     testing.TB
	dev   device.Device
	w     *model.Weights
	eng   model.Engine
	led   *page.Ledger
	tok   *model.Tokenizer
	owner uint32
}

type rigOptions struct {
	cpu    cpu.Options
	engine model.EngineOptions
}

// openDevice makes the device of a rig. The tests of other devices than the CPU put theirs here.
var openDevice = cpu.New

func newRig(t testing.TB, src *model.Source, o rigOptions) *rig {
	t.Helper()
	dev, err := openDevice(o.cpu)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	w, err := model.LoadWeights(dev, src, nil)
	if err != nil {
		t.Fatal(err)
	}
	return newEngineRig(t, &rig{dev: dev, w: w, tok: src.Tokenizer}, o.engine)
}

// newEngineRig adds an engine of another shape over the weights of base.
func newEngineRig(t testing.TB, base *rig, o model.EngineOptions) *rig {
	t.Helper()
	if o.PageSize == 0 {
		o.PageSize = 16
	}
	if o.Pages == 0 {
		o.Pages = 2048/o.PageSize + 1
	}
	if o.Pool == 0 {
		o.Pool = 7
	}
	eng, err := model.NewEngine(base.dev, base.w, o)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, dev: base.dev, w: base.w, tok: base.tok, eng: eng, led: page.NewLedger(o.Pool, o.Pages, o.PageSize)}
}

// seq is a sequence that the rig computes itself.
type seq struct {
	r    *rig
	o    page.Owner
	view page.View
	rows int
}

func (r *rig) seq(rows int) *seq {
	r.t.Helper()
	r.owner++
	s := &seq{r: r, o: page.Owner{Attempt: r.owner}}
	if _, err := r.led.Reserve(s.o, rows); err != nil {
		r.t.Fatal(err)
	}
	var err error
	if s.view, err = r.led.Own(s.o); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// work takes the right to write the next rows.
func (s *seq) work(tokens ...int32) model.Work {
	s.r.t.Helper()
	g, err := s.r.led.Grant(s.o, s.rows, s.rows+len(tokens))
	if err != nil {
		s.r.t.Fatal(err)
	}
	return model.Work{View: s.view, Grant: g, Tokens: tokens, From: s.rows}
}

// done makes the rows of a work readable.
func (s *seq) done(w model.Work) {
	s.r.t.Helper()
	if err := s.r.led.Settle(w.Grant); err != nil {
		s.r.t.Fatal(err)
	}
	s.rows += len(w.Tokens)
	var err error
	if s.view, err = s.r.led.Grow(s.o, s.rows); err != nil {
		s.r.t.Fatal(err)
	}
}

// logits computes rows and gives the logits of each.
func (s *seq) logits(tokens ...int32) [][]float32 {
	s.r.t.Helper()
	return s.logitsFrom(0, tokens)
}

// logitsFrom computes rows and gives the logits of tokens[from:].
func (s *seq) logitsFrom(from int, tokens []int32) [][]float32 {
	s.r.t.Helper()
	w := s.work(tokens...)
	out, err := model.StepLogits(s.r.eng, []model.Work{w}, from)
	if err != nil {
		s.r.t.Fatal(err)
	}
	s.done(w)
	return out
}

// greedy computes the prompt in chunks, then the most likely tokens one by one.
func (s *seq) greedy(prompt []int32, chunk, n int) []int32 {
	s.r.t.Helper()
	p := model.NewPicker(kvtransfer.Sampling{}, s.r.tok, prompt, nil)
	var out []int32
	next := prompt
	for len(out) < n {
		for len(next) > chunk {
			s.step(nil, next[:chunk])
			next = next[chunk:]
		}
		tok := s.step(p, next).Token.ID
		out = append(out, tok)
		next = []int32{tok}
	}
	return out
}

func (s *seq) step(p *model.Picker, tokens []int32) model.Result {
	s.r.t.Helper()
	w := s.work(tokens...)
	w.Pick = p
	res, err := s.r.eng.Step([]model.Work{w})
	if err != nil {
		s.r.t.Fatal(err)
	}
	s.done(w)
	return res[0]
}
