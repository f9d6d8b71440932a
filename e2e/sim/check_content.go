package sim

import (
	"slices"

	"quire/kvtransfer/page"
	"quire/model"
	"quire/model/modeltest"
)

// oracle is the single process: what the engine answers to a prompt when it runs alone, on pages of its own.
type oracle struct {
	o     modeltest.Options
	known map[string][]int32
}

// answer gives the first n output tokens, fewer where the answer ends before.
func (r *oracle) answer(prompt []int32, n int) []int32 {
	key := promptKey(prompt)
	out := r.known[key]
	if len(out) >= n || len(out) > 0 && out[len(out)-1] == r.o.EOS {
		return out[:min(n, len(out))]
	}
	out = solo(r.o, prompt, max(n, 16))
	r.known[key] = out
	return out[:min(n, len(out))]
}

func promptKey(tokens []int32) string {
	b := make([]byte, 0, 2*len(tokens))
	for _, t := range tokens {
		b = append(b, byte(t), byte(t>>8))
	}
	return string(b)
}

// solo runs one prompt on an engine of its own.
func solo(o modeltest.Options, prompt []int32, n int) []int32 {
	rows := len(prompt) + n
	o.Pool, o.Pages, o.PageSize, o.Fail = 1, 1, rows, nil
	e, l, me := modeltest.NewEngine(o), page.NewLedger(1, 1, rows), page.Owner{Attempt: 1}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	_, err := l.Reserve(me, rows)
	must(err)
	v, err := l.Own(me)
	must(err)
	var out []int32
	next, from := prompt, 0
	for len(out) < n {
		g, err := l.Grant(me, from, from+len(next))
		must(err)
		res, err := e.Step([]model.Work{{View: v, Grant: g, Tokens: next, From: from, Pick: &model.Picker{}}})
		must(err)
		must(l.Settle(g))
		from += len(next)
		v, err = l.Grow(me, from)
		must(err)
		out = append(out, res[0].Token.ID)
		if res[0].Finish != "" {
			break
		}
		next = out[len(out)-1:]
	}
	return slices.Clip(out)
}

// checkContent: what a client has is how the single process's answer begins.
func (a *ask) checkContent() {
	want := a.w.oracle.answer(a.tokens, len(a.got))
	if !slices.Equal(want, a.got) {
		a.w.fail("content", "request %d (%s): the client got tokens %v, alone they are %v", a.n, a.key(), a.got, want)
	}
}

// checkWhole: an answer that ended well is the whole one, and its end says what it is.
func (a *ask) checkWhole() {
	end := a.ends[0]
	whole := a.w.oracle.answer(a.tokens, a.most)
	finish := "length"
	if n := len(whole); n > 0 && whole[n-1] == a.w.oracle.o.EOS {
		finish = "stop"
	}
	if string(end.Finish) != finish || len(a.got) != len(whole) || end.Output != len(whole) || end.Prompt != len(a.tokens) {
		a.w.fail("content", "request %d (%s): ended %q with %d tokens, says prompt %d output %d; alone %q with %d, prompt %d",
			a.n, a.key(), end.Finish, len(a.got), end.Prompt, end.Output, finish, len(whole), len(a.tokens))
	}
}
