package replay

import (
	"errors"
	"fmt"

	"quire/device"
	"quire/journal"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
	"quire/tape"
)

// Outcomes of computing a request again.
const (
	Identical       = "identical"
	Diverges        = "diverges"
	NotReproducible = "not reproducible"
)

// Rerun is what came of computing a request again from the tape.
type Rerun struct {
	Verdict  string      `json:"verdict"`
	Why      string      `json:"why,omitempty"` // not reproducible, and when it diverges what could be the reason
	Prompt   int         `json:"prompt"`
	Output   int         `json:"output"`
	At       int         `json:"at"`                 // index of the first output token that differs; -1 = none
	Recorded int32       `json:"recorded,omitempty"` // that token as recorded
	Got      int32       `json:"got,omitempty"`      // and as computed
	Logprobs [2]*float32 `json:"logprobs,omitempty"` // of the two where they differ, as computed now; nil = not among the likeliest 20
	Compute  string      `json:"compute"`            // fingerprint of this machine's arithmetic
	Same     bool        `json:"same_compute"`       // it is the one that answered
}

// Machine is what computes again.
type Machine struct {
	Source  *model.Source
	Device  device.Device
	Weights *model.Weights
	KVType  device.Type // F16, or F32 where the cluster has it so
}

const (
	rerunPageSize = 16
	rerunChunk    = 256 // rows of a step
)

// Run computes a request again: prefill and decode of a fresh engine that nobody else uses. computed is the fingerprint of
// the arithmetic that answered, zero where the journal has none.
func (m Machine) Run(t tape.Take, computed journal.Hash) (Rerun, error) {
	out := Rerun{At: -1, Prompt: len(t.Prompt), Output: len(t.Output)}
	if t.Weights != m.Source.Fingerprint {
		out.Verdict = NotReproducible
		out.Why = fmt.Sprintf("it was answered by %s, fingerprint %x; this is %s, %x", t.Model, t.Weights[:4], m.Source.Name, m.Source.Fingerprint[:4])
		return out, nil
	}
	rows := len(t.Prompt) + len(t.Output)
	if len(t.Prompt) == 0 || len(t.Output) == 0 || rows > m.Source.Config.Context+1 {
		return out, fmt.Errorf("replay: take of %d and %d tokens, context %d", len(t.Prompt), len(t.Output), m.Source.Config.Context)
	}
	s, info, err := m.sequence(rows)
	if err != nil {
		return out, err
	}
	compute := info.Fingerprints.Compute
	out.Compute, out.Same = fmt.Sprintf("%x", compute[:]), computed == compute
	got, err := s.answer(t, m.Source.Tokenizer)
	if err != nil {
		return out, err
	}
	for i, want := range t.Output {
		if i < len(got) && got[i].ID == want {
			continue
		}
		out.Verdict, out.At, out.Recorded, out.Got = Diverges, i, want, -1
		if i < len(got) {
			out.Got = got[i].ID
			out.Logprobs = [2]*float32{logprob(got[i], want), logprob(got[i], got[i].ID)}
		}
		if !out.Same {
			out.Why = "this machine's arithmetic is not that which answered: the last bits may differ"
		}
		return out, nil
	}
	out.Verdict = Identical
	return out, nil
}

// logprob is that of a token among the alternatives that were asked for.
func logprob(t kvtransfer.Token, id int32) *float32 {
	if t.ID == id {
		return &t.Logprob
	}
	for _, a := range t.Top {
		if a.ID == id {
			return &a.Logprob
		}
	}
	return nil
}

// sequence is one sequence over an engine of its own.
type sequence struct {
	engine model.Engine
	ledger *page.Ledger
	owner  page.Owner
	rows   int
}

func (m Machine) sequence(rows int) (*sequence, model.Info, error) {
	const pool = 1
	pages := kvtransfer.PagesFor(rows, rerunPageSize)
	e, err := model.NewEngine(m.Device, m.Weights, model.EngineOptions{Pages: pages, PageSize: rerunPageSize, KVType: m.KVType, Pool: pool})
	if err != nil {
		return nil, model.Info{}, err
	}
	s := &sequence{engine: e, ledger: page.NewLedger(pool, pages, rerunPageSize), owner: page.Owner{Handoff: [16]byte{1}, Attempt: 1}}
	_, err = s.ledger.Reserve(s.owner, rows)
	if err == nil {
		_, err = s.ledger.Own(s.owner)
	}
	return s, e.Info(), err
}

// step appends tokens.
func (s *sequence) step(tokens []int32, pick *model.Picker) (model.Result, error) {
	v, err := s.ledger.View(s.owner)
	if err != nil {
		return model.Result{}, err
	}
	g, err := s.ledger.Grant(s.owner, s.rows, s.rows+len(tokens))
	if err != nil {
		return model.Result{}, err
	}
	res, err := s.engine.Step([]model.Work{{View: v, Grant: g, Tokens: tokens, From: s.rows, Pick: pick}})
	if err = errors.Join(err, s.ledger.Settle(g)); err != nil {
		return model.Result{}, err
	}
	s.rows += len(tokens)
	_, err = s.ledger.Grow(s.owner, s.rows)
	return res[0], err
}

// answer chooses as many tokens as were recorded, with the recorded sampling and seed.
func (s *sequence) answer(t tape.Take, tok *model.Tokenizer) (out []kvtransfer.Token, err error) {
	sampling := t.Sampling
	sampling.Logprobs = max(sampling.Logprobs, 20)
	pick := model.NewPicker(sampling, tok, t.Prompt, nil)
	last := len(t.Prompt) - 1
	for s.rows < last {
		if _, err := s.step(t.Prompt[s.rows:min(last, s.rows+rerunChunk)], nil); err != nil {
			return nil, err
		}
	}
	next := t.Prompt[last:]
	for len(out) < len(t.Output) {
		res, err := s.step(next, pick)
		if err != nil {
			return out, err
		}
		out = append(out, res.Token)
		if res.Finish != "" {
			break
		}
		next = []int32{res.Token.ID}
	}
	return out, nil
}

// Computed is the fingerprint of the arithmetic that answered a request, zero where the record does not say.
func (q *Request) Computed() journal.Hash {
	for i := len(q.Attempts) - 1; i >= 0; i-- {
		if r := q.Attempts[i].Reserved; r != nil && r.Life.Started != nil {
			return r.Life.Started.Compute
		}
	}
	return journal.Hash{}
}
