package replay

import (
	"math"

	"quire/decode"
	"quire/kvtransfer"
	"quire/model"
	"quire/tape"
)

// comparison takes tokens as they are computed and holds them against those that were recorded.
type comparison struct {
	want    []int32       // as recorded
	base    int           // choices[i] is of want[base+i]
	choices []tape.Choice // as recorded
	got     []kvtransfer.Token
	from    []tape.Choice // of each token of got
	theirs  []float32     // the logit that each recorded token has now; NaN = none
	buf     []byte
}

// picker chooses with the recorded sampling, and notes what it chooses from.
func (c *comparison) picker(s kvtransfer.Sampling, tok *model.Tokenizer, prompt, output []int32) *model.Picker {
	s.Logprobs = max(s.Logprobs, 20)
	p := model.NewPicker(s, tok, prompt, output)
	p.Observe(func(_ int, logits []float32, id int32) {
		var at tape.Choice
		at, c.buf = decode.Chosen(logits, id, c.buf)
		c.from = append(c.from, at)
		v := float32(math.NaN())
		if i := len(c.theirs); i < len(c.want) && c.want[i] >= 0 && int(c.want[i]) < len(logits) {
			v = logits[c.want[i]]
		}
		c.theirs = append(c.theirs, v)
	})
	return p
}

func (c *comparison) add(r model.Result) { c.got = append(c.got, r.Token) }

// judge says where the first difference is. Logits are looked at up to it: behind it the histories differ.
func (c *comparison) judge(out Rerun) Rerun {
	out.Verdict = Identical
	for i, want := range c.want {
		if i < len(c.from) {
			c.logits(i, &out)
		}
		if i < len(c.got) && c.got[i].ID == want {
			continue
		}
		out.Verdict, out.At, out.Recorded, out.Got = Diverges, i, want, -1
		if i < len(c.got) {
			got := c.got[i]
			out.Got = got.ID
			out.Logprobs = [2]*float32{logprob(got, want), logprob(got, got.ID)}
			out.Logits = [2]*float32{number(c.theirs[i]), number(math.Float32frombits(c.from[i].Bits))}
		}
		if j := i - c.base; j >= 0 && j < len(c.choices) {
			out.RecordedLogit = number(math.Float32frombits(c.choices[j].Bits))
		}
		if !out.Same {
			out.Why = "this machine's arithmetic is not that which answered: the last bits may differ"
		}
		return out
	}
	return out
}

// logits compares what token i was chosen from.
func (c *comparison) logits(i int, out *Rerun) {
	j := i - c.base
	if j < 0 || j >= len(c.choices) {
		return
	}
	if out.LogitsKnown++; out.LogitsAt < 0 && c.choices[j].Sum != c.from[i].Sum {
		out.LogitsAt = i
	}
}

// number is nil for what JSON cannot say.
func number(v float32) *float32 {
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return &v
}

// logprob is that of a token among the alternatives that were asked for.
func logprob(t kvtransfer.Token, id int32) *float32 {
	if t.ID == id {
		return number(t.Logprob)
	}
	for _, a := range t.Top {
		if a.ID == id {
			return number(a.Logprob)
		}
	}
	return nil
}
