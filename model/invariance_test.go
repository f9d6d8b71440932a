package model_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"quire/device"
	"quire/device/cpu"
	"quire/model"
)

// trace is all that a sequence leaves: stored keys and values, and the logits of every row.
type trace struct {
	kv     []byte
	logits [][]float32
}

// equal says what differs first, "" if nothing does, bit for bit.
func (a trace) equal(b trace) string {
	for i := range a.logits {
		for j := range a.logits[i] {
			if math.Float32bits(a.logits[i][j]) != math.Float32bits(b.logits[i][j]) {
				return fmt.Sprintf("row %d logit %d: %g and %g", i, j, a.logits[i][j], b.logits[i][j])
			}
		}
	}
	if !bytes.Equal(a.kv, b.kv) {
		return "keys or values"
	}
	return ""
}

func (s *seq) trace(logits [][]float32) trace {
	s.r.t.Helper()
	kv, err := s.r.eng.Read(s.view, model.Range{LayerTo: s.r.eng.Info().Layers, RowTo: s.rows}, nil)
	if err != nil {
		s.r.t.Fatal(err)
	}
	return trace{kv, logits}
}

// release gives the pages back, zeroed.
func (s *seq) release() {
	s.r.t.Helper()
	if err := s.r.led.Release(s.o); err != nil {
		s.r.t.Fatal(err)
	}
	ids := s.r.led.TakeZeroing()
	if err := s.r.eng.Zero(ids); err != nil {
		s.r.t.Fatal(err)
	}
	if id := s.r.eng.NonZero(ids); id >= 0 {
		s.r.t.Fatalf("page %d is not zero", id)
	}
	if err := s.r.led.Zeroed(ids); err != nil {
		s.r.t.Fatal(err)
	}
}

// inChunks runs tokens as one sequence, so many at a time.
func (r *rig) inChunks(tokens []int32, chunk int) trace {
	r.t.Helper()
	s := r.seq(len(tokens))
	var logits [][]float32
	for at := 0; at < len(tokens); at += chunk {
		logits = append(logits, s.logits(tokens[at:min(at+chunk, len(tokens))]...)...)
	}
	tr := s.trace(logits)
	s.release()
	return tr
}

// story gives n tokens of no meaning.
func story(n, vocab int, seed uint32) []int32 {
	out := make([]int32, n)
	for i := range out {
		seed = seed*1664525 + 1013904223
		out[i] = int32(seed>>8) % int32(vocab)
	}
	return out
}

// TestRowsDependOnNothingElse is rule 6: a row's bits are the same whatever the chunk, page size, threads and neighbours.
func TestRowsDependOnNothingElse(t *testing.T) {
	for _, variant := range []string{"portable", "avx2"} {
		for _, acts := range []string{"int8", "f32"} {
			for _, kv := range []device.Type{device.F16, device.F32, device.Q8_0} {
				if (variant == "portable" && (acts == "f32") != (kv == device.F32)) || (kv == device.Q8_0 && (variant == "portable" || acts == "f32")) {
					continue // slow, and the same code
				}
				t.Run(fmt.Sprintf("%s/%s/%s", variant, acts, kv), func(t *testing.T) {
					o := cpu.Options{Variant: variant, Activations: acts}
					if dev, err := cpu.New(o); err != nil {
						t.Skip(err)
					} else {
						_ = dev.Close()
					}
					n := 150
					if variant == "portable" {
						n = 70
					}
					testRows(t, open(t, ""), o, kv, n)
				})
			}
		}
	}
}

// TestRowsOfMixedTypesDependOnNothingElse is the same for weights of five and six bits and the K types.
func TestRowsOfMixedTypesDependOnNothingElse(t *testing.T) {
	src := openFile(t, draw(t, 5, mixed).File)
	for _, o := range []cpu.Options{{}, {Activations: "f32"}, {Variant: "avx2"}, {Variant: "portable"}} {
		t.Run(fmt.Sprintf("%s/%s", o.Variant, o.Activations), func(t *testing.T) {
			if dev, err := cpu.New(o); err != nil {
				t.Skip(err)
			} else {
				_ = dev.Close()
			}
			n := 100
			if o.Variant == "portable" {
				n = 30
			}
			testRows(t, src, o, device.F16, n)
		})
	}
}

func testRows(t *testing.T, src *model.Source, o cpu.Options, kv device.Type, n int) {
	tokens := story(n, src.Config.Vocab, 1)
	o.Threads = 1
	base := newRig(t, src, rigOptions{cpu: o, engine: model.EngineOptions{KVType: kv}})
	want := base.inChunks(tokens, 256)
	for _, threads := range []int{2, 3} {
		o.Threads = threads
		r := newRig(t, src, rigOptions{cpu: o, engine: model.EngineOptions{KVType: kv}})
		if diff := want.equal(r.inChunks(tokens, 256)); diff != "" {
			t.Errorf("%d threads: %s", threads, diff)
		}
		base = r
	}
	sizes := []int{16, 32, 5, 12, 128}
	if n < 100 {
		sizes = []int{16, 5}
	}
	for _, size := range sizes {
		r := newEngineRig(t, base, model.EngineOptions{KVType: kv, PageSize: size})
		r.t = t
		for _, chunk := range []int{1, 7, 64, 256} {
			if size != 16 && chunk == 1 || n < 100 && chunk == 64 {
				continue
			}
			if diff := want.equal(r.inChunks(tokens, chunk)); diff != "" {
				t.Errorf("page size %d, chunks of %d: %s", size, chunk, diff)
			}
		}
	}
	r := newEngineRig(t, base, model.EngineOptions{KVType: kv, Pages: 512})
	r.t = t
	if diff := want.equal(r.amongOthers(tokens)); diff != "" {
		t.Errorf("among others: %s", diff)
	}
}

// amongOthers runs tokens row by row in a batch of 13, the others being of all lengths.
// Those that have grown long are replaced by new ones.
func (r *rig) amongOthers(tokens []int32) trace {
	r.t.Helper()
	var seqs []*seq
	vocab := r.eng.Info().Vocab
	for i := range 13 {
		s := r.seq(len(tokens) + 20)
		seqs = append(seqs, s)
		if i != 4 {
			s.logits(story(1+i*i%17, vocab, uint32(i))...)
		}
	}
	var out [][]float32
	for len(out) < len(tokens) {
		at := len(out)
		n := min(1+at%3, len(tokens)-at)
		var work []model.Work
		row := 0
		for i, s := range seqs {
			switch {
			case i == 4:
				work = append(work, s.work(tokens[at:at+n]...))
				continue
			case i < 4:
				row++
			}
			if s.rows == len(tokens)+20 {
				s.release()
				*s = *r.seq(len(tokens) + 20)
			}
			work = append(work, s.work(int32((at*31+i)%vocab)))
		}
		rows, err := model.StepLogits(r.eng, work, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, rows[row:row+n]...)
		for i, s := range seqs {
			s.done(work[i])
		}
	}
	return seqs[4].trace(out)
}

// TestWitness admits what was computed, and shows one changed byte anywhere.
func TestWitness(t *testing.T) {
	for name, src := range map[string]*model.Source{"embedded": open(t, ""), "mixed types": openFile(t, draw(t, 5, mixed).File)} {
		t.Run(name, func(t *testing.T) { testWitness(t, src, device.F16) })
	}
	t.Run("embedded, Q8_0", func(t *testing.T) { testWitness(t, open(t, ""), device.Q8_0) })
}

func testWitness(t *testing.T, src *model.Source, kv device.Type) {
	r := newRig(t, src, rigOptions{engine: model.EngineOptions{KVType: kv}})
	tokens := story(70, src.Config.Vocab, 9)
	s := r.seq(len(tokens))
	s.step(nil, tokens[:40])
	w := s.work(tokens[40:]...)
	w.Hidden = true
	res, err := r.eng.Step([]model.Work{w})
	if err != nil {
		t.Fatal(err)
	}
	s.done(w)
	last := len(tokens) - 1
	witness := func(want []float32) string {
		t.Helper()
		res, err := r.eng.Step([]model.Work{{View: s.view, Tokens: tokens[last:], From: last, Witness: true, Want: want}})
		if err != nil {
			t.Fatal(err)
		}
		return res[0].Mismatch
	}
	if m := witness(res[0].Hidden); m != "" {
		t.Errorf("honest rows: mismatch in %s", m)
	}
	forged := append([]float32(nil), res[0].Hidden...)
	forged[3] = math.Nextafter32(forged[3], 9)
	if m := witness(forged); m != "hidden" {
		t.Errorf("forged hidden vector: mismatch in %q", m)
	}
	if row, err := r.eng.WitnessRows(s.view, tokens[5:], 5); row != -1 || err != nil {
		t.Errorf("honest rows: row %d differs, %v", row, err)
	}
	other := append([]int32(nil), tokens...)
	other[33]++
	if row, err := r.eng.WitnessRows(s.view, other, 0); row != 33 || err != nil {
		t.Errorf("another token at 33: row %d differs, %v", row, err)
	}
	for layer := range r.eng.Info().Layers {
		if m := r.witnessAfterFlip(tokens, layer, res[0].Hidden); m == "" {
			t.Errorf("a changed value in layer %d was not seen", layer)
		}
	}
}

// witnessAfterFlip hands the rows over with one value of the last row but one of a layer changed, and gives the witness's
// mismatch. (A row far back may weigh nothing at all in a head, and then cannot be seen.)
func (r *rig) witnessAfterFlip(tokens []int32, layer int, want []float32) string {
	r.t.Helper()
	s := r.seq(len(tokens))
	s.step(nil, tokens)
	rng := model.Range{LayerTo: r.eng.Info().Layers, RowTo: s.rows}
	kv, err := r.eng.Read(s.view, rng, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	n := r.eng.Info().BytesPerRow / r.eng.Info().Layers
	v := kv[(layer*s.rows+s.rows-2)*n+n/2:] // first value of the row
	binary.LittleEndian.PutUint16(v, binary.LittleEndian.Uint16(v)^0x4000)
	to := r.seq(len(tokens))
	w := to.work(tokens...)
	if err := r.eng.Write(w.Grant, rng, kv); err != nil {
		r.t.Fatal(err)
	}
	to.done(w)
	last := len(tokens) - 1
	res, err := r.eng.Step([]model.Work{{View: to.view, Tokens: tokens[last:], From: last, Witness: true, Want: want}})
	if err != nil {
		r.t.Fatal(err)
	}
	return res[0].Mismatch
}
