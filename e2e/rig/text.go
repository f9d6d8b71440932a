package rig

import (
	"fmt"
	"strings"
)

// filler are sentences that tell nothing of use; padding are words of one token each.
var (
	filler = []string{"The sun was warm and the garden was quiet.", "A small bird sat on the wall and sang.", "The old cat slept near the door.",
		"Rain fell on the roof all night.", "In the morning the path was wet.", "The baker made bread and gave some to the children.",
		"A boat went down the river.", "The wind moved the tall grass.", "Somebody had left a lantern on the bench.", "Far away a bell rang."}
	padding = []string{"so", "and", "then", "the", "day", "went", "on", "again"}
)

// Prompt is a conversation: a system message and one turn of a user.
type Prompt struct {
	System, User string
	Tokens       []int32
}

// Padded makes a conversation of exactly n tokens that tells a fact and asks a question. What stands before the fact says nothing,
// and begins differently for facts of different length.
func (r *Rig) Padded(fact, question string, n int) (Prompt, error) {
	var before []string
	make := func(pad int) (Prompt, error) {
		p := Prompt{System: fact, User: question}
		if text := strings.Join(append(before[:len(before):len(before)], words(pad)), " "); text != "" {
			p.System = strings.TrimSpace(text) + " " + fact
		}
		var err error
		p.Tokens, err = r.Tokens(p.System, p.User)
		return p, err
	}
	p, err := make(0)
	for i := 0; err == nil && len(p.Tokens) < n; i++ {
		last := p
		before = append(before, filler[(len(fact)+i)%len(filler)])
		if p, err = make(0); err == nil && len(p.Tokens) > n {
			before, p = before[:len(before)-1], last
			break
		}
	}
	for pad := 1; err == nil && len(p.Tokens) < n; pad++ {
		p, err = make(pad)
	}
	if err == nil && len(p.Tokens) != n {
		err = fmt.Errorf("rig: prompt: %d tokens wanted, %d made", n, len(p.Tokens))
	}
	return p, err
}

// words is a sentence of n padding words.
func words(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(padding[i%len(padding)])
	}
	return b.String()
}

// Chat is the body of a chat request, greedy.
func (p Prompt) Chat(maxTokens int, stream bool) map[string]any {
	return map[string]any{"messages": []map[string]string{{"role": "system", "content": p.System}, {"role": "user", "content": p.User}},
		"max_tokens": maxTokens, "temperature": 0, "stream": stream}
}

// Completion is the same prompt for the other operation, as token ids.
func (p Prompt) Completion(maxTokens int, stream bool) map[string]any {
	return map[string]any{"prompt": p.Tokens, "max_tokens": maxTokens, "temperature": 0, "stream": stream}
}
