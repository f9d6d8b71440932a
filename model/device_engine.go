package model

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"quire/device"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// EngineOptions sizes an engine's pool of pages.
type EngineOptions struct {
	Pages    int
	PageSize int         // token slots of a page
	KVType   device.Type // F16 (the zero value too), F32 or Q8_0
	Pool     uint64      // the ledger's number; not zero
	// Rows and Chosen are what working memory is made for at once: rows of a step, and rows whose tokens are chosen. A larger step
	// makes more when it comes; 0 makes none before.
	Rows, Chosen int
	// Bounds loosen the witness for workers whose compute fingerprints differ. The zero value asks for equal bits.
	Bounds Bounds
}

// Bounds is how far a witness may be from what was received and still agree: |difference| <= bound * (1 + |value|).
type Bounds struct {
	KV     float32
	Hidden float32
}

// deviceEngine is the production Engine: a forward pass over a device.
type deviceEngine struct {
	w      *Weights
	pool   device.Pool
	info   Info
	bounds Bounds

	mu     sync.Mutex // guards what follows: an engine's steps run one at a time
	fwd    forward
	logits [][]float32 // each [Vocab]: reused by every step, pickers keep nothing of them
}

// NewEngine makes an engine of its own pool over shared weights.
func NewEngine(dev device.Device, w *Weights, o EngineOptions) (Engine, error) {
	if o.KVType == 0 {
		o.KVType = device.F16
	}
	c := w.Config
	spec := device.PoolSpec{
		Number: o.Pool, Pages: o.Pages, PageSize: o.PageSize, Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Type: o.KVType,
	}
	pool, err := dev.Pool(spec)
	if err != nil {
		return nil, fmt.Errorf("model: engine: %w", err)
	}
	compute, err := computeFingerprint(dev, o.KVType)
	if err != nil {
		return nil, fmt.Errorf("model: engine: fingerprint: %w", err)
	}
	e := &deviceEngine{w: w, pool: pool, bounds: o.Bounds, fwd: forward{w: w}}
	e.info = Info{
		Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Dim: c.Dim, Vocab: c.Vocab, Context: c.Context,
		BytesPerRow: c.Layers * spec.RowBytes(), PageSize: o.PageSize, Pages: o.Pages,
		Fingerprints: kvtransfer.Fingerprints{Model: w.Fingerprint, Layout: layoutFingerprint(spec), Compute: compute},
	}
	if o.Rows > 0 {
		if err := e.fwd.fit(o.Rows, o.Chosen); err != nil {
			return nil, fmt.Errorf("model: engine: %w", err)
		}
	}
	return e, nil
}

// attnScale is the factor on attention's scores.
func (w *Weights) attnScale() float32 { return float32(1 / math.Sqrt(float64(w.Config.HeadDim))) }

// Info describes the engine.
func (e *deviceEngine) Info() Info { return e.info }

// Read copies rows out of the pool.
func (e *deviceEngine) Read(v page.View, r Range, dst []byte) ([]byte, error) {
	dst, err := e.pool.Read(v, device.Range(r), dst)
	return dst, copied(err)
}

// Write copies the bytes of a frame into the pool.
func (e *deviceEngine) Write(g page.Grant, r Range, src []byte) error {
	return copied(e.pool.Write(g, device.Range(r), src))
}

// Zero clears whole pages.
func (e *deviceEngine) Zero(pages []page.ID) error { return copied(e.pool.Zero(pages)) }

// NonZero is the first of the pages that holds anything but zeros, or -1.
func (e *deviceEngine) NonZero(pages []page.ID) int { return e.pool.NonZero(pages) }

// Step computes the rows of every work in one batch.
func (e *deviceEngine) Step(work []Work) ([]Result, error) {
	if len(work) == 0 {
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.batch(work)
	if err != nil {
		return nil, bug(err)
	}
	out := e.outputs(work, b)
	if err := e.fwd.fit(len(b.Tokens), len(out.logitRows)); err != nil {
		return nil, failed(err)
	}
	ops := append(e.fwd.body[:len(e.fwd.body):len(e.fwd.body)], e.fwd.tail(out)...)
	if e.exact() && slices.ContainsFunc(work, func(w Work) bool { return w.Witness }) {
		out.differs = make([]int32, len(work))
		ops = append(ops, device.Compare{Layers: e.info.Layers, Differs: out.differs})
	}
	if err := e.w.dev.Run(&device.Step{Batch: b, Ops: ops}); err != nil {
		return nil, failed(err)
	}
	if err := e.fetchLeft(out); err != nil {
		return nil, failed(err)
	}
	return e.results(work, b, out)
}

// batch lays the works' rows out one after another.
func (e *deviceEngine) batch(work []Work) (*device.Batch, error) {
	b := &device.Batch{Pool: e.pool, Seqs: make([]device.Seq, len(work))}
	for i := range work {
		w := &work[i]
		n := len(w.Tokens)
		if n == 0 || w.From < 0 || w.From+n > e.info.Context {
			return nil, fmt.Errorf("model: step: work %d: rows %d to %d, the context takes %d", i, w.From, w.From+n, e.info.Context)
		}
		s := device.Seq{Row: len(b.Tokens), Rows: n, From: w.From, View: w.View, Grant: w.Grant}
		if w.Witness {
			if n != 1 || w.Grant.Valid() || len(w.Want) != e.info.Dim {
				return nil, fmt.Errorf("model: step: work %d: a witness of %d rows, grant %t, hidden %d of %d", i, n, w.Grant.Valid(), len(w.Want), e.info.Dim)
			}
			s.Scratch = make([]byte, e.info.BytesPerRow)
		}
		for _, t := range w.Tokens {
			if t < 0 || int(t) >= e.info.Vocab {
				return nil, fmt.Errorf("model: step: work %d: a token is beyond the vocabulary of %d", i, e.info.Vocab)
			}
		}
		b.Seqs[i] = s
		b.Tokens = append(b.Tokens, w.Tokens...)
	}
	return b, device.CheckBatch(b)
}

// outputs says which rows leave the device.
func (e *deviceEngine) outputs(work []Work, b *device.Batch) *outputs {
	o := &outputs{}
	for i := range work {
		last := b.Seqs[i].Row + b.Seqs[i].Rows - 1
		if work[i].Hidden || work[i].Witness {
			o.hiddenRows = append(o.hiddenRows, last)
			o.hidden = append(o.hidden, make([]float32, e.info.Dim))
		}
		if work[i].Pick != nil {
			if len(o.logitRows) == len(e.logits) {
				e.logits = append(e.logits, make([]float32, e.info.Vocab))
			}
			o.logitRows = append(o.logitRows, last)
			o.logits = e.logits[:len(o.logitRows)]
		}
	}
	if device.Picks(e.w.dev) {
		o.choose(work)
	}
	return o
}

// results compares witnesses and lets pickers choose, in parallel: each has its own row of logits.
func (e *deviceEngine) results(work []Work, b *device.Batch, o *outputs) ([]Result, error) {
	res := make([]Result, len(work))
	hidden, logits := o.hidden, o.logits
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var firstErr error
	for i := range work {
		w, r := &work[i], &res[i]
		if w.Hidden || w.Witness {
			r.Hidden, hidden = hidden[0], hidden[1:]
		}
		if w.Witness {
			found, err := int32(-1), error(nil)
			if o.differs != nil {
				found = o.differs[i]
			}
			if r.Mismatch, err = e.witness(w, b.Seqs[i].Scratch, found, r.Hidden); err != nil && firstErr == nil {
				firstErr = err
			}
		}
		if w.Pick == nil {
			continue
		}
		if tok, ok := o.chosen(len(o.logits) - len(logits)); ok {
			r.Token, r.Finish, r.Stop, r.Held = w.Pick.take(tok)
			logits = logits[1:]
			continue
		}
		row := logits[0]
		logits = logits[1:]
		pick := func() { r.Token, r.Finish, r.Stop, r.Held = w.Pick.Pick(row) }
		if len(o.logits) == 1 {
			pick()
			continue
		}
		slots <- struct{}{}
		wg.Go(func() { pick(); <-slots })
	}
	wg.Wait()
	return res, bug(firstErr)
}

// bug wraps an error that can only come from a caller who broke the contract.
func bug(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", kvtransfer.Error{Code: kvtransfer.Invariant, Detail: err.Error()}, err)
}

// copied wraps an error of a pool's call: the device's own, or that of a caller who broke the contract.
func copied(err error) error {
	if errors.Is(err, device.ErrDevice) {
		return failed(err)
	}
	return bug(err)
}

// failed wraps an error of the device. A page that carries another owner's tag is a Bug: the ledger said otherwise.
func failed(err error) error {
	var f *device.Fault
	if errors.As(err, &f) {
		return bug(err)
	}
	return fmt.Errorf("%w: %w", kvtransfer.Error{Code: kvtransfer.DeviceFailed, Detail: err.Error()}, err)
}
