package modeltest

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"

	"quire/kvtransfer"
	"quire/model"
)

// Step computes the rows of every Work. All of them are checked before the first is computed.
func (e *Engine) Step(work []model.Work) ([]model.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.fail("step"); err != nil {
		return nil, err
	}
	for i, w := range work {
		if err := e.checkWork(w); err != nil {
			return nil, fmt.Errorf("modeltest: step: work %d: %w", i, err)
		}
	}
	e.steps++
	out := make([]model.Result, len(work))
	for i, w := range work {
		out[i] = e.run(w)
	}
	return out, nil
}

func (e *Engine) checkWork(w model.Work) error {
	if len(w.Tokens) == 0 {
		return fmt.Errorf("no tokens")
	}
	for _, t := range w.Tokens {
		if t < 0 || int(t) >= e.o.Vocab {
			return fmt.Errorf("token %d of %d", t, e.o.Vocab)
		}
	}
	if w.Witness {
		if len(w.Tokens) != 1 || w.Grant.Valid() {
			return fmt.Errorf("a witness has %d tokens, a grant: %t", len(w.Tokens), w.Grant.Valid())
		}
		return e.checkView(w.View, w.From+1)
	}
	if err := e.checkView(w.View, w.From); err != nil {
		return err
	}
	return e.checkGrant(w.Grant, w.From, w.From+len(w.Tokens))
}

// run computes one Work, layer by layer, reading rows [0, From) as they are stored.
func (e *Engine) run(w model.Work) model.Result {
	var res model.Result
	rows := make([][]byte, len(w.Tokens)) // of the present layer, [tokens][rowBytes]
	for i, t := range w.Tokens {
		rows[i] = e.embed(t, w.From+i)
	}
	for l := range e.o.Layers {
		res.Mismatch = e.store(w, l, rows, res.Mismatch)
		sum := e.seed(l)
		for p := range w.From {
			sum = mix(sum, e.at(l, p, w.View.Slot))
		}
		above := make([][]byte, len(rows))
		for i, row := range rows {
			sum = mix(sum, row)
			above[i] = expand(sum)
		}
		rows = above
	}
	last := rows[len(rows)-1] // a function of all of the last layer's rows
	hidden := make([]float32, dim)
	for i := range hidden {
		hidden[i] = float32(binary.LittleEndian.Uint16(last[2*i:]))
	}
	if w.Witness && res.Mismatch == "" {
		for i := range hidden {
			if i >= len(w.Want) || math.Float32bits(hidden[i]) != math.Float32bits(w.Want[i]) {
				res.Mismatch = "hidden"
			}
		}
	}
	if w.Hidden {
		res.Hidden = hidden
	}
	if w.Pick != nil && res.Mismatch == "" {
		picked := e.choose(w, last)
		picked.Hidden, picked.Mismatch = res.Hidden, res.Mismatch
		return picked
	}
	return res
}

// store writes the rows of one layer, or compares them where the Work is a witness.
func (e *Engine) store(w model.Work, layer int, rows [][]byte, mismatch string) string {
	for i, row := range rows {
		if !w.Witness {
			copy(e.at(layer, w.From+i, w.Grant.Slot), row)
			continue
		}
		if got := e.at(layer, w.From+i, w.View.Slot); mismatch == "" && string(got) != string(row) {
			part := "k"
			if string(got[:rowBytes/2]) == string(row[:rowBytes/2]) {
				part = "v"
			}
			mismatch = fmt.Sprintf("layer %d %s", layer, part)
		}
	}
	return mismatch
}

// choose takes the greatest of the logits, or asks Options.Choose.
func (e *Engine) choose(w model.Work, last []byte) model.Result {
	best := int32(binary.LittleEndian.Uint64(last) % uint64(e.o.Vocab))
	if e.o.Choose != nil {
		logits := make([]float32, e.o.Vocab)
		logits[best] = 10
		return e.o.Choose(w, logits)
	}
	r := model.Result{Token: kvtransfer.Token{ID: best, Text: fmt.Appendf(nil, " %d", best)}}
	if e.o.EOS != 0 && best == e.o.EOS {
		r.Token.Text, r.Finish, r.Stop = nil, kvtransfer.FinishStop, fmt.Sprint(best)
	}
	return r
}

// embed is a row of layer 0: a function of token and position alone. [rowBytes], never all zeros.
func (e *Engine) embed(token int32, pos int) []byte {
	var b [12]byte
	binary.LittleEndian.PutUint32(b[:], uint32(token))
	binary.LittleEndian.PutUint64(b[4:], uint64(pos))
	return expand(mix(e.seed(-1), b[:]))
}

func (e *Engine) seed(layer int) uint64 { return e.o.Seed*0x9e3779b97f4a7c15 + uint64(layer+2) }

func mix(sum uint64, b []byte) uint64 {
	h := fnv.New64a()
	var s [8]byte
	binary.LittleEndian.PutUint64(s[:], sum)
	h.Write(s[:])
	h.Write(b)
	return h.Sum64()
}

// expand makes a row out of a sum. [rowBytes]
func expand(sum uint64) []byte {
	out := make([]byte, 0, rowBytes)
	for len(out) < rowBytes {
		sum = mix(sum, []byte{byte(len(out))})
		out = binary.LittleEndian.AppendUint64(out, sum|1)
	}
	return out[:rowBytes]
}
