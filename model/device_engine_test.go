package model_test

import (
	"errors"
	"testing"

	"quire/device"
	"quire/device/cpu"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
)

// TestEngineRefusesWithoutRights: a step, a copy or a witness without a real view or grant of the pool is a Bug.
func TestEngineRefusesWithoutRights(t *testing.T) {
	src := open(t, "")
	r := newRig(t, src, rigOptions{})
	other := newEngineRig(t, r, model.EngineOptions{Pool: 8})
	tokens := story(20, src.Config.Vocab, 1)
	s, foreign := r.seq(40), other.seq(40)
	s.step(nil, tokens)
	foreign.step(nil, tokens)
	w, fw := s.work(1), foreign.work(1)
	want := make([]float32, r.eng.Info().Dim)
	one := model.Range{LayerTo: 1, RowTo: 1}
	frame := make([]byte, r.eng.Info().BytesPerRow/r.eng.Info().Layers)
	step := func(w model.Work) error {
		_, err := r.eng.Step([]model.Work{w})
		return err
	}
	_, readZero := r.eng.Read(page.View{}, one, nil)
	_, readForeign := r.eng.Read(foreign.view, one, nil)
	_, rowsZero := r.eng.WitnessRows(page.View{}, tokens, 0)
	_, rowsBeyond := r.eng.WitnessRows(s.view, tokens, 1)
	for what, err := range map[string]error{
		"a zero view":                  step(model.Work{Grant: w.Grant, Tokens: w.Tokens, From: w.From}),
		"a zero grant":                 step(model.Work{View: w.View, Tokens: w.Tokens, From: w.From}),
		"a foreign view":               step(model.Work{View: foreign.view, Grant: w.Grant, Tokens: w.Tokens, From: w.From}),
		"a foreign grant":              step(model.Work{View: w.View, Grant: fw.Grant, Tokens: w.Tokens, From: w.From}),
		"a start past what was read":   step(model.Work{View: w.View, Grant: w.Grant, Tokens: w.Tokens, From: w.From + 1}),
		"more rows than granted":       step(model.Work{View: w.View, Grant: w.Grant, Tokens: []int32{1, 2}, From: w.From}),
		"no rows":                      step(model.Work{View: w.View, Grant: w.Grant, From: w.From}),
		"a token beyond":               step(model.Work{View: w.View, Grant: w.Grant, Tokens: []int32{2048}, From: w.From}),
		"a witness with a grant":       step(model.Work{View: w.View, Grant: w.Grant, Tokens: tokens[19:], From: 19, Witness: true, Want: want}),
		"a witness without its vector": step(model.Work{View: w.View, Tokens: tokens[19:], From: 19, Witness: true}),
		"a witness of an unread row":   step(model.Work{View: w.View, Tokens: w.Tokens, From: 20, Witness: true, Want: want}),
		"reading by a zero view":       readZero,
		"reading a foreign view":       readForeign,
		"writing by a zero grant":      r.eng.Write(page.Grant{}, one, frame),
		"writing a foreign grant":      r.eng.Write(fw.Grant, one, frame),
		"zeroing a page beyond":        r.eng.Zero([]page.ID{1 << 20}),
		"witness rows by a zero view":  rowsZero,
		"witness rows beyond":          rowsBeyond,
	} {
		var e kvtransfer.Error
		if !errors.As(err, &e) || e.Code != kvtransfer.Invariant {
			t.Errorf("%s: %v, want the class of a Bug", what, err)
		}
	}
	if err := step(w); err != nil {
		t.Errorf("an honest step was refused: %v", err)
	}
}

// TestFingerprints: what changes bits changes the compute fingerprint, and nothing else does.
func TestFingerprints(t *testing.T) {
	src := open(t, "")
	info := func(o cpu.Options, e model.EngineOptions) kvtransfer.Fingerprints {
		return newRig(t, src, rigOptions{o, e}).eng.Info().Fingerprints
	}
	base := info(cpu.Options{}, model.EngineOptions{})
	if again := info(cpu.Options{Threads: 3}, model.EngineOptions{PageSize: 32, Pool: 9}); again != base {
		t.Error("threads, page size or pool change a fingerprint")
	}
	if base.Model == [32]byte{} || base.Layout == [32]byte{} || base.Compute == [32]byte{} {
		t.Error("a fingerprint is empty")
	}
	if f := info(cpu.Options{Activations: "f32"}, model.EngineOptions{}); f.Compute == base.Compute || f.Layout != base.Layout {
		t.Error("the activations' type must change the compute fingerprint alone")
	}
	if f := info(cpu.Options{}, model.EngineOptions{KVType: device.F32}); f.Compute == base.Compute || f.Layout == base.Layout {
		t.Error("the type of keys and values must change compute and layout")
	}
}
