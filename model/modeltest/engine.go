// Package modeltest has a small deterministic model.Engine for tests of what surrounds an engine: hand-offs, loops, services.
//
// It has no weights. Row p of layer 0 is a function of the token and the position alone; row p of a higher layer is a function
// of all bytes of rows [0, p] of the layer below, read from the pages; the next token and the hidden vector are functions of
// all bytes of rows [0, p] of the last layer. So one foreign byte anywhere in a sequence's pages changes its answer, and two
// engines given the same tokens give the same bytes whatever their page size, pool or chunks.
package modeltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
)

// Options of a fake engine. Zero fields take the defaults.
type Options struct {
	Pool     uint64 // 1; number of the ledger's pool whose views it takes
	Pages    int    // 64
	PageSize int    // 16 token slots
	Layers   int    // 2
	Vocab    int    // 256; token ids [0, Vocab)
	EOS      int32  // token that ends an answer; 0 = none
	Context  int    // 4096 tokens
	Seed     uint64 // stands for the weights: engines of one seed are one model

	// Fail, if set, is asked before each operation (step, read, write, zero, witness); an error is returned as it is and the
	// operation does nothing.
	Fail func(op string) error
	// Choose, if set, replaces how a token is chosen from the logits, [Vocab]. It is called for Works with a Picker.
	Choose func(w model.Work, logits []float32) model.Result
}

const (
	kvHeads  = 1
	headDim  = 4
	rowBytes = 2 * kvHeads * headDim * 2 // K and V of one row of one layer
	dim      = 4
)

// Engine is the fake. Its methods may be called from any goroutine.
type Engine struct {
	o     Options
	mu    sync.Mutex
	pool  []byte // [layers][pages][page size][row bytes]
	steps int
}

var _ model.Engine = (*Engine)(nil)

// NewEngine makes a fake engine with a zeroed pool.
func NewEngine(o Options) *Engine {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Pages, 64)
	def(&o.PageSize, 16)
	def(&o.Layers, 2)
	def(&o.Vocab, 256)
	def(&o.Context, 4096)
	if o.Pool == 0 {
		o.Pool = 1
	}
	return &Engine{o: o, pool: make([]byte, o.Layers*o.Pages*o.PageSize*rowBytes)}
}

// Info describes the fake; its fingerprints are functions of Seed and Layers.
func (e *Engine) Info() model.Info {
	i := model.Info{
		Layers: e.o.Layers, KVHeads: kvHeads, HeadDim: headDim, Dim: dim, Vocab: e.o.Vocab, Context: e.o.Context,
		BytesPerRow: e.o.Layers * rowBytes, PageSize: e.o.PageSize, Pages: e.o.Pages,
	}
	binary.LittleEndian.PutUint64(i.Fingerprints.Model[:], e.o.Seed+1)
	binary.LittleEndian.PutUint64(i.Fingerprints.Layout[:], uint64(e.o.Layers))
	i.Fingerprints.Compute = [32]byte{'f', 'a', 'k', 'e'}
	return i
}

// Steps is how many steps have run.
func (e *Engine) Steps() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.steps
}

// at is where the bytes of one row of one layer are. [rowBytes]
func (e *Engine) at(layer, row int, slot func(int) page.Slot) []byte {
	s := slot(row / e.o.PageSize)
	i := ((layer*e.o.Pages+int(s.Page))*e.o.PageSize + row%e.o.PageSize) * rowBytes
	return e.pool[i : i+rowBytes]
}

func (e *Engine) fail(op string) error {
	if e.o.Fail == nil {
		return nil
	}
	return e.o.Fail(op)
}

func (e *Engine) checkView(v page.View, rows int) error {
	if !v.Valid() || v.Pool() != e.o.Pool || v.PageSize() != e.o.PageSize {
		return errors.New("modeltest: view: not of this pool")
	}
	if rows > v.Rows() {
		return fmt.Errorf("modeltest: view: rows %d of %d readable", rows, v.Rows())
	}
	return nil
}

func (e *Engine) checkGrant(g page.Grant, from, to int) error {
	if !g.Valid() || g.Pool() != e.o.Pool || g.PageSize() != e.o.PageSize {
		return errors.New("modeltest: grant: not of this pool")
	}
	if from < g.From() || to > g.To() {
		return fmt.Errorf("modeltest: grant: rows [%d, %d) of [%d, %d)", from, to, g.From(), g.To())
	}
	return nil
}

// Read copies rows out of the pool in the order of a frame.
func (e *Engine) Read(v page.View, r model.Range, dst []byte) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := errors.Join(e.fail("read"), e.checkView(v, r.RowTo)); err != nil {
		return dst, err
	}
	for l := r.LayerFrom; l < r.LayerTo; l++ {
		for p := r.RowFrom; p < r.RowTo; p++ {
			dst = append(dst, e.at(l, p, v.Slot)...)
		}
	}
	return dst, nil
}

// Write copies the bytes of a frame into the pool.
func (e *Engine) Write(g page.Grant, r model.Range, src []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := errors.Join(e.fail("write"), e.checkGrant(g, r.RowFrom, r.RowTo)); err != nil {
		return err
	}
	if want := (r.LayerTo - r.LayerFrom) * (r.RowTo - r.RowFrom) * rowBytes; len(src) != want {
		return fmt.Errorf("modeltest: write: %d bytes, expected %d", len(src), want)
	}
	for l := r.LayerFrom; l < r.LayerTo; l++ {
		for p := r.RowFrom; p < r.RowTo; p++ {
			src = src[copy(e.at(l, p, g.Slot), src[:rowBytes]):]
		}
	}
	return nil
}

// Zero clears whole pages.
func (e *Engine) Zero(pages []page.ID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.fail("zero"); err != nil {
		return err
	}
	for _, id := range pages {
		for l := range e.o.Layers {
			clear(e.page(l, id))
		}
	}
	return nil
}

// NonZero is the first of these pages that holds anything but zeros, or -1.
func (e *Engine) NonZero(pages []page.ID) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range pages {
		for l := range e.o.Layers {
			if slices.ContainsFunc(e.page(l, id), func(b byte) bool { return b != 0 }) {
				return int(id)
			}
		}
	}
	return -1
}

// page is all slots of one page in one layer.
func (e *Engine) page(layer int, id page.ID) []byte {
	n := e.o.PageSize * rowBytes
	i := (layer*e.o.Pages + int(id)) * n
	return e.pool[i : i+n]
}

// WitnessRows compares layer 0 of rows [from, from+len(tokens)) with what the tokens give; the first that differs, or -1.
func (e *Engine) WitnessRows(v page.View, tokens []int32, from int) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := errors.Join(e.fail("witness"), e.checkView(v, from+len(tokens))); err != nil {
		return 0, err
	}
	for i, t := range tokens {
		if got := e.at(0, from+i, v.Slot); string(got) != string(e.embed(t, from+i)) {
			return from + i, nil
		}
	}
	return -1, nil
}

// Token is the id that an engine of these options chooses after this prompt and output, computed on pages of its own.
func Token(o Options, tokens []int32) kvtransfer.Token {
	o.Pool, o.Pages, o.PageSize, o.Fail = 1, 1, len(tokens), nil
	e := NewEngine(o)
	l := page.NewLedger(1, 1, len(tokens))
	owner := page.Owner{Attempt: 1}
	if _, err := l.Reserve(owner, len(tokens)); err != nil {
		panic(err)
	}
	v, err := l.Own(owner)
	if err != nil {
		panic(err)
	}
	g, err := l.Grant(owner, 0, len(tokens))
	if err != nil {
		panic(err)
	}
	r, err := e.Step([]model.Work{{View: v, Grant: g, Tokens: tokens, Pick: &model.Picker{}}})
	if err != nil {
		panic(err)
	}
	return r[0].Token
}
