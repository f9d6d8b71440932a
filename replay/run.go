package replay

import (
	"errors"
	"fmt"
	"slices"

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

// What was computed again.
const (
	FromPrompt = "prompt" // prefill and decode, from the prompt
	FromFrames = "frames" // decode alone, from the frames that came
)

// Rerun is what came of computing a request again from the tape.
type Rerun struct {
	Verdict  string `json:"verdict"`
	From     string `json:"from"`
	Why      string `json:"why,omitempty"` // not reproducible, and when it diverges what could be the reason
	Prompt   int    `json:"prompt"`
	Output   int    `json:"output"`
	At       int    `json:"at"`                 // index of the first output token that differs; -1 = none
	Recorded int32  `json:"recorded,omitempty"` // that token as recorded
	Got      int32  `json:"got,omitempty"`      // and as computed
	// Of the token recorded and of the one computed, where they differ, as computed now; nil = not known.
	Logits   [2]*float32 `json:"logits"`
	Logprobs [2]*float32 `json:"logprobs,omitempty"` // among the likeliest 20
	// RecordedLogit is the logit of the token recorded as it was; nil where the tape has no frames of the attempt.
	RecordedLogit *float32 `json:"recorded_logit,omitempty"`
	LogitsKnown   int      `json:"logits_known"` // output tokens of which the tape has the digest of all logits
	LogitsAt      int      `json:"logits_at"`    // the first of them whose logits are not bit for bit those that were; -1 = none
	Compute       string   `json:"compute"`      // fingerprint of this machine's arithmetic
	Same          bool     `json:"same_compute"` // it is the one that answered

	// From frames alone: what the gate and the witness say of them now, and what they said then. "" = not asked.
	Gate         string `json:"gate,omitempty"`
	GateRecorded string `json:"gate_recorded,omitempty"`
	Witness      string `json:"witness,omitempty"`
	Frames       int    `json:"frames,omitempty"`
}

// Machine is what computes again.
type Machine struct {
	Source  *model.Source
	Device  device.Device
	Weights *model.Weights
	KVType  device.Type // F16, or F32 or Q8_0 where the cluster has it so
}

const (
	rerunPageSize = 16
	rerunChunk    = 256 // rows of a step
)

// Run computes a request again: prefill and decode of a fresh engine that nobody else uses. computed is the fingerprint of
// the arithmetic that answered, zero where the journal has none; had is what decode had of the last attempt, nil where the tape
// has nothing of it.
func (m Machine) Run(t tape.Take, computed journal.Hash, had *tape.Attempt) (Rerun, error) {
	out := Rerun{From: FromPrompt, At: -1, LogitsAt: -1, Prompt: len(t.Prompt), Output: len(t.Output)}
	if t.Weights != m.Source.Fingerprint {
		return out.not("it was answered by %s, fingerprint %x; this is %s, %x", t.Model, t.Weights[:4], m.Source.Name, m.Source.Fingerprint[:4]), nil
	}
	rows := len(t.Prompt) + len(t.Output)
	if len(t.Prompt) == 0 || len(t.Output) == 0 || rows > m.Source.Config.Context+1 {
		return out, fmt.Errorf("replay: take of %d and %d tokens, context %d", len(t.Prompt), len(t.Output), m.Source.Config.Context)
	}
	s, info, err := m.sequence(rows, rerunPageSize)
	if err != nil {
		return out, err
	}
	compute := info.Fingerprints.Compute
	out.Compute, out.Same = fmt.Sprintf("%x", compute[:]), computed == compute
	c := &comparison{want: t.Output}
	if had != nil && had.End != nil {
		if base := len(had.Head.Tokens) - had.Head.Prompt; base+len(had.End.Output) == len(t.Output) {
			c.base, c.choices = base, had.End.Choices
		}
	}
	if err := s.answer(t, m.Source.Tokenizer, c); err != nil {
		return out, err
	}
	return c.judge(out), nil
}

// not says that nothing can be computed here.
func (r Rerun) not(format string, args ...any) Rerun {
	r.Verdict, r.Why = NotReproducible, fmt.Sprintf(format, args...)
	return r
}

// sequence is one sequence over an engine of its own.
type sequence struct {
	engine model.Engine
	ledger *page.Ledger
	owner  page.Owner
	rows   int
}

func (m Machine) sequence(rows, pageSize int) (*sequence, model.Info, error) {
	const pool = 1
	pages := kvtransfer.PagesFor(rows, pageSize)
	e, err := model.NewEngine(m.Device, m.Weights, model.EngineOptions{Pages: pages, PageSize: pageSize, KVType: m.KVType, Pool: pool})
	if err != nil {
		return nil, model.Info{}, err
	}
	s := &sequence{engine: e, ledger: page.NewLedger(pool, pages, pageSize), owner: page.Owner{Handoff: [16]byte{1}, Attempt: 1}}
	_, err = s.ledger.Reserve(s.owner, rows)
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
func (s *sequence) answer(t tape.Take, tok *model.Tokenizer, c *comparison) error {
	if _, err := s.ledger.Own(s.owner); err != nil {
		return err
	}
	pick := c.picker(t.Sampling, tok, t.Prompt, nil)
	last := len(t.Prompt) - 1
	for s.rows < last {
		if _, err := s.step(t.Prompt[s.rows:min(last, s.rows+rerunChunk)], nil); err != nil {
			return err
		}
	}
	return s.more(t.Prompt[last:], pick, c)
}

// more appends tokens and then, one by one, what is chosen, up to the end or as many as were recorded.
func (s *sequence) more(next []int32, pick *model.Picker, c *comparison) error {
	for len(c.got) < len(c.want) {
		res, err := s.step(next, pick)
		if err != nil {
			return err
		}
		if c.add(res); res.Finish != "" {
			return nil
		}
		next = []int32{res.Token.ID}
	}
	return nil
}

// Attempt is one attempt of a request: the last that has pages when number is 0, nil where there is none.
func (q *Request) Attempt(number uint32) *Attempt {
	for _, a := range slices.Backward(q.Attempts) {
		if a.Key.Attempt == number || number == 0 && a.Reserved != nil {
			return a
		}
	}
	return nil
}

// TookMicros is how long a request took at its router, 0 where the record does not say.
func (q *Request) TookMicros() int64 {
	if q.Finished == nil {
		return 0
	}
	return q.Finished.Facts.(journal.Finished).TookMicros
}

// DecodeMicros is how long decode took from its verdict to the end of an attempt, by its own clock; 0 where the record does not
// say.
func (a *Attempt) DecodeMicros() int64 {
	if a.Verdict == nil || a.Finished == nil || a.Verdict.Life != a.Finished.Life {
		return 0
	}
	return int64(a.Finished.At - a.Verdict.At)
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
