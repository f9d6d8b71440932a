package modeltest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"quire/kvtransfer/page"
	"quire/model"
)

// seq is one sequence in an engine.
type seq struct {
	t     *testing.T
	e     *Engine
	l     *page.Ledger
	owner page.Owner
	view  page.View
}

func start(t *testing.T, o Options, rows int) *seq {
	t.Helper()
	e := NewEngine(o)
	s := &seq{t: t, e: e, l: page.NewLedger(e.o.Pool, e.o.Pages, e.o.PageSize), owner: page.Owner{Attempt: 1}}
	_, err := s.l.Reserve(s.owner, rows)
	s.ok(err)
	s.view, err = s.l.Own(s.owner)
	s.ok(err)
	return s
}

func (s *seq) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// step computes tokens as the next rows.
func (s *seq) step(tokens []int32) model.Result {
	s.t.Helper()
	from := s.view.Rows()
	g, err := s.l.Grant(s.owner, from, from+len(tokens))
	s.ok(err)
	r, err := s.e.Step([]model.Work{{View: s.view, Grant: g, Tokens: tokens, From: from, Hidden: true, Pick: &model.Picker{}}})
	s.ok(err)
	s.ok(s.l.Settle(g))
	s.view, err = s.l.Grow(s.owner, from+len(tokens))
	s.ok(err)
	return r[0]
}

func tokens(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i * 31 % 256)
	}
	return out
}

// The token depends on the tokens alone: not on chunks, page size or pool.
func TestSameWhateverTheShape(t *testing.T) {
	in := tokens(20)
	want := start(t, Options{}, 20).step(in)
	for _, o := range []Options{{PageSize: 1}, {PageSize: 7, Pool: 5}, {PageSize: 20, Pages: 1}} {
		for _, chunk := range []int{1, 3, 20} {
			s := start(t, o, 20)
			var got model.Result
			for c := range slices.Chunk(in, chunk) {
				got = s.step(c)
			}
			if got.Token.ID != want.Token.ID || !slices.Equal(got.Hidden, want.Hidden) {
				t.Errorf("%+v, chunks of %d: token %d, want %d", o, chunk, got.Token.ID, want.Token.ID)
			}
		}
	}
	if got := Token(Options{}, in); got.ID != want.Token.ID {
		t.Errorf("Token gives %d, want %d", got.ID, want.Token.ID)
	}
	if got := start(t, Options{Seed: 1}, 20).step(in); slices.Equal(got.Hidden, want.Hidden) {
		t.Error("another seed is the same model")
	}
}

// One byte of one row anywhere changes the answer, and the witness sees it.
func TestOneByteChangesTheAnswer(t *testing.T) {
	in := tokens(6)
	for layer := range 2 {
		for row := range 6 {
			s := start(t, Options{PageSize: 4}, 8)
			hidden := s.step(in).Hidden
			s.e.at(layer, row, s.view.Slot)[3] ^= 1
			first, err := s.e.WitnessRows(s.view, in, 0)
			s.ok(err)
			if want := map[bool]int{true: row, false: -1}[layer == 0]; first != want {
				t.Errorf("layer %d row %d: first row that differs: %d", layer, row, first)
			}
			r, err := s.e.Step([]model.Work{{View: s.view, Tokens: in[5:], From: 5, Witness: true, Want: hidden, Hidden: true}})
			s.ok(err)
			if r[0].Mismatch == "" {
				t.Errorf("layer %d row %d: the witness saw nothing", layer, row)
			}
			if row < 5 && slices.Equal(r[0].Hidden, hidden) {
				t.Errorf("layer %d row %d: the answer is the same", layer, row)
			}
		}
	}
	s := start(t, Options{PageSize: 4}, 8)
	want := s.step(in)
	r, err := s.e.Step([]model.Work{{View: s.view, Tokens: in[5:], From: 5, Witness: true, Want: want.Hidden, Pick: &model.Picker{}}})
	s.ok(err)
	if r[0].Mismatch != "" || r[0].Token.ID != want.Token.ID {
		t.Errorf("mismatch %q, token %d, want %d", r[0].Mismatch, r[0].Token.ID, want.Token.ID)
	}
}

func TestReadWriteZero(t *testing.T) {
	in := tokens(6)
	a := start(t, Options{PageSize: 4}, 6)
	a.step(in)
	b := start(t, Options{PageSize: 5, Pool: 3}, 6)
	g, err := b.l.Grant(b.owner, 0, 6)
	b.ok(err)
	for _, r := range []model.Range{{LayerFrom: 1, LayerTo: 2, RowTo: 6}, {LayerTo: 1, RowTo: 2}, {LayerTo: 1, RowFrom: 2, RowTo: 6}} {
		bytes, err := a.e.Read(a.view, r, nil)
		a.ok(err)
		b.ok(b.e.Write(g, r, bytes))
		if err := b.e.Write(g, r, bytes[1:]); err == nil {
			t.Error("a short write was taken")
		}
	}
	b.ok(b.l.Settle(g))
	b.view, err = b.l.Grow(b.owner, 6)
	b.ok(err)
	all := model.Range{LayerTo: 2, RowTo: 6}
	x, err := a.e.Read(a.view, all, nil)
	a.ok(err)
	y, err := b.e.Read(b.view, all, nil)
	b.ok(err)
	if !slices.Equal(x, y) {
		t.Error("what was written is not what was read")
	}
	used := b.view.Slot(0).Page
	if got := b.e.NonZero([]page.ID{63, used}); got != int(used) {
		t.Errorf("NonZero: %d, want %d", got, used)
	}
	b.ok(b.e.Zero([]page.ID{used, b.view.Slot(1).Page}))
	if got := b.e.NonZero([]page.ID{used, b.view.Slot(1).Page}); got != -1 {
		t.Errorf("NonZero after Zero: %d", got)
	}
}

// What a real engine refuses, this one refuses too.
func TestRefuses(t *testing.T) {
	s := start(t, Options{PageSize: 4}, 8)
	s.step(tokens(3))
	g, err := s.l.Grant(s.owner, 3, 4)
	s.ok(err)
	foreign := start(t, Options{PageSize: 4, Pool: 2}, 8)
	for _, c := range []struct {
		name string
		work model.Work
	}{
		{"no tokens", model.Work{View: s.view, Grant: g, From: 3}},
		{"a zero view", model.Work{Grant: g, Tokens: tokens(1), From: 3}},
		{"a view of another pool", model.Work{View: foreign.view, Grant: g, Tokens: tokens(1)}},
		{"rows beyond the view", model.Work{View: s.view, Grant: g, Tokens: tokens(1), From: 4}},
		{"rows beyond the grant", model.Work{View: s.view, Grant: g, Tokens: tokens(2), From: 3}},
		{"no grant", model.Work{View: s.view, Tokens: tokens(1), From: 3}},
		{"a token outside of the vocabulary", model.Work{View: s.view, Grant: g, Tokens: []int32{256}, From: 3}},
		{"a witness with a grant", model.Work{View: s.view, Grant: g, Tokens: tokens(1), From: 2, Witness: true}},
		{"a witness of two tokens", model.Work{View: s.view, Tokens: tokens(2), From: 1, Witness: true}},
		{"a witness beyond the view", model.Work{View: s.view, Tokens: tokens(1), From: 3, Witness: true}},
	} {
		if _, err := s.e.Step([]model.Work{c.work}); err == nil {
			t.Errorf("%s was taken", c.name)
		}
	}
	if _, err := s.e.Read(s.view, model.Range{LayerTo: 2, RowTo: 4}, nil); err == nil {
		t.Error("a row beyond the view was read")
	}
	broken := errors.New("broken")
	f := start(t, Options{Fail: func(op string) error { return fmt.Errorf("%s: %w", op, broken) }}, 8)
	if err := f.e.Zero(nil); !errors.Is(err, broken) {
		t.Errorf("Fail: %v", err)
	}
	if s.e.Steps() != 1 {
		t.Errorf("steps %d", s.e.Steps())
	}
}

func TestChoose(t *testing.T) {
	o := Options{Choose: func(_ model.Work, logits []float32) model.Result {
		var r model.Result
		r.Token.ID = int32(len(logits))
		return r
	}}
	if got := start(t, o, 4).step(tokens(3)); got.Token.ID != 256 {
		t.Errorf("token %d", got.Token.ID)
	}
	first := Token(Options{}, tokens(3)).ID
	if got := start(t, Options{EOS: first}, 4).step(tokens(3)); got.Finish == "" || got.Token.Text != nil {
		t.Errorf("end token: %+v", got)
	}
	i := NewEngine(Options{}).Info()
	if i.BytesPerRow != i.Layers*2*i.KVHeads*i.HeadDim*2 || i.Fingerprints.Pool() == "" {
		t.Errorf("info %+v", i)
	}
}
