package model

import (
	"math"
	"slices"
	"strconv"

	"quire/device"
	"quire/kvtransfer"
)

// Picker chooses tokens for one sequence and makes their text: penalties, sampling, stop tokens, stop strings, characters
// that span tokens. What it chooses depends on the logits, the sampling, the seed and the tokens so far, and on nothing else:
// two pickers that have seen the same tokens choose alike, on every machine.
//
// It belongs to one sequence; calls must not overlap.
type Picker struct {
	s       kvtransfer.Sampling
	tok     *Tokenizer
	index   int           // output tokens chosen so far
	output  map[int32]int // how often each token was chosen
	seen    map[int32]bool
	forbid  []int32 // tokens not to be chosen before MinTokens
	stops   stopper
	detok   *Detokenizer
	scratch []float32
	order   []entry
	weights []float64 // by id, relative to the largest
	observe func(index int, logits []float32, id int32)
}

// NewPicker prepares for the token after prompt and output. output are tokens of this answer that an earlier attempt chose:
// the picker goes on as if it had chosen them itself.
func NewPicker(s kvtransfer.Sampling, tok *Tokenizer, prompt, output []int32) *Picker {
	p := &Picker{s: s, tok: tok, output: map[int32]int{}, stops: newStopper(s.Stop), detok: tok.NewDetokenizer()}
	if p.repeats() {
		p.seen = make(map[int32]bool, len(prompt)+len(output))
		for _, id := range prompt {
			p.seen[id] = true
		}
	}
	if s.MinTokens > 0 {
		p.forbid = append(p.forbid, s.StopTokens...)
		if !s.IgnoreEOS {
			p.forbid = append(p.forbid, tok.EOS()...)
		}
	}
	for _, id := range output {
		p.advance(id)
	}
	return p
}

func (p *Picker) repeats() bool { return p.s.RepetitionPenalty != 0 && p.s.RepetitionPenalty != 1 }

// Observe has fn called with every token that is chosen: its index among the output tokens, and the logits as the model gave
// them, [Vocab], which fn neither keeps nor changes.
func (p *Picker) Observe(fn func(index int, logits []float32, id int32)) { p.observe = fn }

// Index is how many output tokens have been chosen.
func (p *Picker) Index() int { return p.index }

// Pick chooses the next token from the logits of the last row, [Vocab], which it does not change. finish is set when the answer
// ends with this token; stop then names the stop string that matched, or the number of the stop token ("" for an end token),
// and held is text that was held back until now. The text of a stop string is never given out.
func (p *Picker) Pick(logits []float32) (tok kvtransfer.Token, finish kvtransfer.Finish, stop string, held []byte) {
	tok.ID = p.choose(p.adjust(logits))
	if p.observe != nil {
		p.observe(p.index, logits, tok.ID)
	}
	if p.s.Logprobs >= 0 {
		tok.Logprob, tok.Top = logprobs(logits, tok.ID, p.s.Logprobs)
	}
	return p.take(tok)
}

// plain says how the next token is sampled where nothing but the logits counts, and nobody wants to see them: no penalty, bias,
// forbidden token or log probabilities. A device may choose it then.
func (p *Picker) plain() (how device.Sampling, ok bool) {
	s := p.s
	if s.Logprobs >= 0 || p.observe != nil || p.forbids() || p.penalises() || len(p.seen) > 0 || len(s.LogitBias) > 0 {
		return how, false
	}
	return device.Sampling{Temperature: float64(s.Temperature), TopP: float64(s.TopP), MinP: float64(s.MinP), TopK: s.TopK,
		U: uniform(s.Seed, uint64(p.index))}, true
}

// forbids says whether tokens must not be chosen yet.
func (p *Picker) forbids() bool { return p.index < p.s.MinTokens && len(p.forbid) > 0 }

// penalises says whether tokens count that were chosen before.
func (p *Picker) penalises() bool {
	return (p.s.PresencePenalty != 0 || p.s.FrequencyPenalty != 0) && len(p.output) > 0
}

// take goes on with a token that was chosen.
func (p *Picker) take(tok kvtransfer.Token) (_ kvtransfer.Token, finish kvtransfer.Finish, stop string, held []byte) {
	ends, isStop := p.ending(tok.ID)
	if ends {
		p.count(tok.ID)
		if isStop {
			stop = strconv.Itoa(int(tok.ID))
		}
		return tok, kvtransfer.FinishStop, stop, p.Flush()
	}
	tok.Text, stop = p.advance(tok.ID)
	if stop != "" {
		return tok, kvtransfer.FinishStop, stop, nil
	}
	return tok, "", "", nil
}

// Flush gives the text held back so far and forgets it: a possible beginning of a stop string, and U+FFFD for a character that
// was never completed. It is for an answer that ends by its length.
func (p *Picker) Flush() []byte { return p.detok.Flush(p.stops.flush()) }

// ending says whether a token ends the answer, and whether as one of the request's stop tokens.
func (p *Picker) ending(id int32) (ends, isStop bool) {
	if p.index < p.s.MinTokens {
		return false, false
	}
	if slices.Contains(p.s.StopTokens, id) {
		return true, true
	}
	return !p.s.IgnoreEOS && p.tok.IsEOS(id), false
}

func (p *Picker) count(id int32) {
	p.index++
	p.output[id]++
	if p.seen != nil {
		p.seen[id] = true
	}
}

// advance takes a chosen token in and gives the text that may go out, and the stop string that it completes.
func (p *Picker) advance(id int32) (text []byte, stop string) {
	p.count(id)
	return p.stops.add(p.detok.Add(nil, id), p.index >= p.s.MinTokens)
}

// adjust applies penalties, biases and forbidden tokens. The result is the given slice where nothing applies.
func (p *Picker) adjust(logits []float32) []float32 {
	s := p.s
	forbidden, counts := p.forbids(), p.penalises()
	if !forbidden && !counts && len(p.seen) == 0 && len(s.LogitBias) == 0 {
		return logits
	}
	p.scratch = append(p.scratch[:0], logits...)
	at := func(id int32) *float32 {
		if id < 0 || int(id) >= len(logits) {
			return new(float32)
		}
		return &p.scratch[id]
	}
	for id := range p.seen {
		if v := at(id); *v > 0 {
			*v /= s.RepetitionPenalty
		} else {
			*v *= s.RepetitionPenalty
		}
	}
	if counts {
		for id, n := range p.output {
			v := at(id)
			*v -= float32(float32(n) * s.FrequencyPenalty)
			*v -= s.PresencePenalty
		}
	}
	for _, b := range s.LogitBias {
		*at(b.Token) += b.Value
	}
	if forbidden {
		for _, id := range p.forbid {
			*at(id) = float32(math.Inf(-1))
		}
	}
	return p.scratch
}
