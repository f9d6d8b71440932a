package model

import (
	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// Engine runs a loaded model over the pages of one pool. A process has one device; engines (one for prefill's pool, one for
// decode's) queue their steps on it, and each call returns when its step has ended. Methods may be called from any goroutine.
//
// The tokens that come out depend on the model, the sequence's own tokens, its sampling and seed, and on nothing else: not on
// what else is in the batch, on chunk or page size, or on the pool.
type Engine interface {
	// Info never changes during the life of the engine.
	Info() Info
	// Step computes the rows of every Work in one batch and returns one Result for each, in the same order. An error is the
	// whole step's: no row counts as written then.
	Step(work []Work) ([]Result, error)
	// Read copies rows [rowFrom, rowTo) of layers [layerFrom, layerTo) out of the pool, appended to dst in the order of a
	// frame: [layers][rows][2: K, V][kvHeads][headDim] as stored.
	Read(v page.View, r Range, dst []byte) ([]byte, error)
	// Write copies the bytes of a frame (without its hidden vector) into the pool.
	Write(g page.Grant, r Range, src []byte) error
	// Zero clears whole pages.
	Zero(pages []page.ID) error
	// NonZero returns the first of these pages that holds anything but zeros, or -1: for invariants and tests.
	NonZero(pages []page.ID) int
	// WitnessRows recomputes K and V of layer 0 for rows [from, from+len(tokens)) from the token ids alone and compares them bit
	// for bit with what the view holds. It returns the first row that differs, or -1.
	WitnessRows(v page.View, tokens []int32, from int) (int, error)
}

// Info describes an engine.
type Info struct {
	Layers, KVHeads, HeadDim int
	Dim                      int // length of a hidden vector
	Vocab                    int
	Context                  int // tokens the model can take
	BytesPerRow              int // of all layers: Layers * 2 * KVHeads * HeadDim numbers of the KV type
	PageSize                 int // token slots of a page
	Pages                    int
	Fingerprints             kvtransfer.Fingerprints
}

// Range is a run of layers and a run of rows, both half open.
type Range struct {
	LayerFrom, LayerTo int
	RowFrom, RowTo     int
}

// Work is what a step does for one sequence: compute rows [From, From+len(Tokens)).
type Work struct {
	View   page.View  // rows [0, From) are read (in a witness: [0, From+1), the received row included)
	Grant  page.Grant // where the new rows are written; the zero Grant in a witness, whose rows go to scratch
	Tokens []int32
	From   int
	Hidden bool    // return the last layer's output for the last row
	Pick   *Picker // choose a token from the last row's logits; nil chooses none

	// Witness: Tokens is the last prompt token alone, From its position. K and V of every layer are computed into scratch and
	// compared with the received row, the last layer's output with Want, bit for bit (or within Info's bounds in mixed mode).
	Witness bool
	Want    []float32 // [Dim]
}

// Result is what came of one Work.
type Result struct {
	Token  kvtransfer.Token // if Pick was set
	Finish kvtransfer.Finish
	Stop   string // the stop string or token that matched
	Held   []byte // text still held back when Finish is set
	Hidden []float32
	// Mismatch says in which layer and part (k, v, hidden) the witness differed; "" when it agreed or none was asked for.
	Mismatch string
}
