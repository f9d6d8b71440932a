package model_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quire/kvtransfer"
	"quire/model"
)

// logitsFor gives logits of which one token is by far the largest.
func logitsFor(vocab int, id int32) []float32 {
	l := make([]float32, vocab)
	l[id] = 50
	return l
}

// play feeds a picker tokens that the logits force, and gives the texts that came out.
func play(p *model.Picker, vocab int, ids []int32) (texts []string, finish kvtransfer.Finish, stop, held string) {
	for _, id := range ids {
		t, f, s, h := p.Pick(logitsFor(vocab, id))
		texts = append(texts, string(t.Text))
		if f != "" {
			return texts, f, s, string(h)
		}
	}
	return texts, "", "", ""
}

func TestPickerStops(t *testing.T) {
	tok := open(t, "").Tokenizer
	eos := tok.EOS()[0]
	enc := func(s string) []int32 { return tok.Encode(s, model.EncodeOptions{}) }
	for _, c := range []struct {
		name   string
		s      kvtransfer.Sampling
		ids    []int32
		text   string
		finish kvtransfer.Finish
		stop   string
		held   string
		flush  string
	}{
		{name: "plain", ids: enc("hello world"), text: "hello world"},
		{name: "end token", ids: append(enc("hello"), eos), text: "hello", finish: "stop"},
		{name: "ignore_eos", s: kvtransfer.Sampling{IgnoreEOS: true}, ids: append(enc("hello"), eos), text: "hello"},
		{name: "stop token", s: kvtransfer.Sampling{StopTokens: []int32{69}}, ids: []int32{262, 69}, text: tok.Decode([]int32{262}), finish: "stop", stop: "69"},
		{name: "stop string across tokens", s: kvtransfer.Sampling{Stop: []string{"lo w"}}, ids: enc("hello world"), text: "hel", finish: "stop", stop: "lo w"},
		{name: "stop string begun, then not", s: kvtransfer.Sampling{Stop: []string{"lo x"}}, ids: enc("hello world"), text: "hello world"},
		{name: "held at the end", s: kvtransfer.Sampling{Stop: []string{"rld!"}}, ids: enc("hello world"), text: "hello wo", flush: "rld"},
		{name: "held, then end token", s: kvtransfer.Sampling{Stop: []string{"rld!"}}, ids: append(enc("hello world"), eos), text: "hello wo", finish: "stop", held: "rld"},
		{name: "first to end wins", s: kvtransfer.Sampling{Stop: []string{"world", "wo", "orld"}}, ids: enc("hello world"), text: "hello ", finish: "stop", stop: "wo"},
		{name: "character cut", ids: enc("é")[:1], flush: "\uFFFD"},
		{name: "characters whole", ids: enc("Grüße 🎉!"), text: "Grüße 🎉!"},
		{name: "stop string of several bytes", s: kvtransfer.Sampling{Stop: []string{"🎉"}}, ids: enc("Grüße 🎉!"), text: "Grüße ", finish: "stop", stop: "🎉"},
		{name: "min_tokens", s: kvtransfer.Sampling{MinTokens: 4, Stop: []string{"h"}}, ids: enc("hhhhh"), text: "hhh", finish: "stop", stop: "h"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.s.Logprobs = -1
			p := model.NewPicker(c.s, tok, nil, nil)
			texts, finish, stop, held := play(p, tok.Vocab(), c.ids)
			if got := strings.Join(texts, ""); got != c.text || finish != c.finish || stop != c.stop || held != c.held {
				t.Errorf("text %q finish %q stop %q held %q, want %q %q %q %q", got, finish, stop, held, c.text, c.finish, c.stop, c.held)
			}
			if got := string(p.Flush()); got != c.flush {
				t.Errorf("flush %q, want %q", got, c.flush)
			}
		})
	}
}

func TestMinTokensForbidsTheEnd(t *testing.T) {
	tok := open(t, "").Tokenizer
	l := logitsFor(tok.Vocab(), tok.EOS()[0])
	l[7] = 10
	p := model.NewPicker(kvtransfer.Sampling{MinTokens: 2, Logprobs: -1}, tok, nil, nil)
	for i := range 3 {
		got, finish, _, _ := p.Pick(l)
		if wantEnd := i == 2; (finish != "") != wantEnd || (got.ID == 7) == wantEnd {
			t.Errorf("token %d: %d, finish %q", i, got.ID, finish)
		}
	}
}

func TestGreedyTiesAndPenalties(t *testing.T) {
	tok := open(t, "").Tokenizer
	l := make([]float32, tok.Vocab())
	l[10], l[20], l[30] = 5, 5, 4.5
	next := func(s kvtransfer.Sampling, prompt, output []int32) int32 {
		got, _, _, _ := model.NewPicker(s, tok, prompt, output).Pick(l)
		return got.ID
	}
	for _, c := range []struct {
		name           string
		s              kvtransfer.Sampling
		prompt, output []int32
		want           int32
	}{
		{"lowest id of equals", kvtransfer.Sampling{}, nil, nil, 10},
		{"repetition counts the prompt", kvtransfer.Sampling{RepetitionPenalty: 1.5}, []int32{10}, nil, 20},
		{"presence counts the output alone", kvtransfer.Sampling{PresencePenalty: 2}, []int32{10}, nil, 10},
		{"presence", kvtransfer.Sampling{PresencePenalty: 2}, nil, []int32{10}, 20},
		{"frequency grows", kvtransfer.Sampling{FrequencyPenalty: 0.3}, nil, []int32{10, 10, 20, 20}, 30},
		{"bias", kvtransfer.Sampling{LogitBias: []kvtransfer.Bias{{Token: 99, Value: 100}}}, nil, nil, 99},
		{"bias of a token that is none", kvtransfer.Sampling{LogitBias: []kvtransfer.Bias{{Token: 1 << 30, Value: 100}, {Token: -1, Value: 1}}}, nil, nil, 10},
		{"top_k 1 is greedy", kvtransfer.Sampling{Temperature: 2, TopK: 1, Seed: 9}, nil, nil, 10},
		{"min_p 1 keeps the best", kvtransfer.Sampling{Temperature: 2, MinP: 1, TopK: 1}, nil, nil, 10},
		{"tiny top_p is greedy", kvtransfer.Sampling{Temperature: 2, TopP: 1e-6}, nil, nil, 10},
	} {
		c.s.Logprobs = -1
		if got := next(c.s, c.prompt, c.output); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if l[10] != 5 || l[99] != 0 {
		t.Error("Pick changed the logits")
	}
}

// TestSamplingFollowsTheDistribution compares how often tokens come with their probabilities.
func TestSamplingFollowsTheDistribution(t *testing.T) {
	tok := open(t, "").Tokenizer
	l := make([]float32, 160)
	for i := range l {
		l[i] = -30
	}
	copy(l[100:], []float32{3, 2, 1, 0, -1})
	for _, c := range []struct {
		s    kvtransfer.Sampling
		want []float64 // weights
	}{
		{kvtransfer.Sampling{Temperature: 1}, []float64{20.086, 7.389, 2.718, 1, 0.368}},
		{kvtransfer.Sampling{Temperature: 2}, []float64{4.482, 2.718, 1.649, 1, 0.607}},
		{kvtransfer.Sampling{Temperature: 1, TopK: 2}, []float64{20.086, 7.389, 0, 0, 0}},
		{kvtransfer.Sampling{Temperature: 1, TopP: 0.9}, []float64{20.086, 7.389, 2.718, 0, 0}},
		{kvtransfer.Sampling{Temperature: 1, TopP: 0.9, TopK: 3}, []float64{20.086, 7.389, 0, 0, 0}},
		{kvtransfer.Sampling{Temperature: 1, MinP: 0.1}, []float64{20.086, 7.389, 2.718, 0, 0}},
		{kvtransfer.Sampling{Temperature: 1, MinP: 0.1, TopP: 0.999}, []float64{20.086, 7.389, 2.718, 0, 0}},
	} {
		total, counts := 0.0, make([]float64, 5)
		for _, w := range c.want {
			total += w
		}
		const draws = 3000
		for seed := range uint64(draws) {
			c.s.Seed, c.s.Logprobs = seed, -1
			got, _, _, _ := model.NewPicker(c.s, tok, nil, nil).Pick(l)
			if got.ID < 100 || got.ID > 104 {
				t.Fatalf("%+v: token %d", c.s, got.ID)
			}
			counts[got.ID-100]++
		}
		for i, n := range counts {
			p := c.want[i] / total
			if sigma := math.Sqrt(draws * p * (1 - p)); math.Abs(n-draws*p) > 4*sigma+0.01*p {
				t.Errorf("%+v: token %d came %v times of %d, its share is %.3f", c.s, 100+i, n, draws, p)
			}
		}
	}
}

func TestLogprobs(t *testing.T) {
	tok := open(t, "").Tokenizer
	l := make([]float32, tok.Vocab())
	for i := range l {
		l[i] = float32(math.Inf(-1))
	}
	l[3], l[5], l[8] = float32(math.Log(0.5)), float32(math.Log(0.3)), float32(math.Log(0.2))
	got, _, _, _ := model.NewPicker(kvtransfer.Sampling{Logprobs: 2}, tok, nil, nil).Pick(l)
	if got.ID != 3 || math.Abs(float64(got.Logprob)-math.Log(0.5)) > 1e-6 || len(got.Top) != 2 || got.Top[1].ID != 5 ||
		math.Abs(float64(got.Top[1].Logprob)-math.Log(0.3)) > 1e-6 {
		t.Errorf("%+v", got)
	}
	got, _, _, _ = model.NewPicker(kvtransfer.Sampling{Logprobs: 0}, tok, nil, nil).Pick(l)
	if len(got.Top) != 0 || got.Logprob == 0 {
		t.Errorf("logprobs 0: %+v", got)
	}
}

// TestResumedPickerGoesOn cuts an answer anywhere and goes on with a new picker: tokens and texts must be those of one that
// was never cut.
func TestResumedPickerGoesOn(t *testing.T) {
	tok := open(t, "").Tokenizer
	rapid.Check(t, func(t *rapid.T) {
		s := kvtransfer.Sampling{
			Temperature: rapid.SampledFrom([]float32{0, 0.7, 1.3}).Draw(t, "temperature"), Seed: rapid.Uint64().Draw(t, "seed"),
			TopK: rapid.SampledFrom([]int{0, 5}).Draw(t, "top_k"), TopP: rapid.SampledFrom([]float32{0, 0.8}).Draw(t, "top_p"),
			RepetitionPenalty: rapid.SampledFrom([]float32{0, 1.2}).Draw(t, "repetition"), PresencePenalty: 0.5, Logprobs: -1,
			Stop: rapid.SliceOfN(rapid.StringMatching(`[a-e ]{1,3}`), 0, 2).Draw(t, "stop"), IgnoreEOS: true,
		}
		prompt := tok.Encode("one two", model.EncodeOptions{})
		logits := func(i int) []float32 {
			l := make([]float32, tok.Vocab())
			for k := range 40 {
				l[(i*37+k*k*11)%len(l)] = float32(k%7) + 3
			}
			return l
		}
		const n = 12
		run := func(cut int) string {
			var out []int32
			var b bytes.Buffer
			p := model.NewPicker(s, tok, prompt, nil)
			for i := range n {
				if i == cut {
					p = model.NewPicker(s, tok, prompt, out)
				}
				got, finish, stop, held := p.Pick(logits(i))
				out = append(out, got.ID)
				b.Write(got.Text)
				if finish != "" {
					return fmt.Sprint(out, b.String(), stop, string(held))
				}
			}
			return fmt.Sprint(out, b.String(), string(p.Flush()))
		}
		cut := rapid.IntRange(0, n-1).Draw(t, "cut")
		if whole, cutRun := run(-1), run(cut); whole != cutRun {
			t.Fatalf("cut at %d: %s, want %s", cut, cutRun, whole)
		}
	})
}

// TestStopDoesNotDependOnTokens cuts one text into tokens in many ways: what comes out before the stop string is the same.
func TestStopDoesNotDependOnTokens(t *testing.T) {
	tok := open(t, "").Tokenizer
	single := map[string]int32{}
	for id := range int32(tok.Vocab()) {
		if s := string(tok.Piece(id)); s != "" {
			if _, have := single[s]; !have {
				single[s] = id
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[abc ]{0,30}`).Draw(t, "text")
		s := kvtransfer.Sampling{Logprobs: -1, Stop: rapid.SliceOfN(rapid.StringMatching(`[abc ]{1,4}`), 1, 3).Draw(t, "stop")}
		var bytewise []int32
		for _, r := range text {
			bytewise = append(bytewise, single[string(r)])
		}
		run := func(ids []int32) string {
			p := model.NewPicker(s, tok, nil, nil)
			texts, finish, stop, held := play(p, tok.Vocab(), ids)
			return fmt.Sprintf("%q %q %q", strings.Join(texts, "")+held+string(p.Flush()), finish, stop)
		}
		if a, b := run(bytewise), run(tok.Encode(text, model.EncodeOptions{})); a != b {
			t.Fatalf("%q: byte by byte %s, in tokens %s", text, a, b)
		}
		if want := fmt.Sprintf("%q", text); !slices.ContainsFunc(s.Stop, func(x string) bool { return strings.Contains(text, x) }) &&
			!strings.HasPrefix(run(bytewise), want) {
			t.Fatalf("%s, want all of %s", run(bytewise), want)
		}
	})
}

func BenchmarkPick(b *testing.B) {
	tok := open(b, "").Tokenizer
	l := make([]float32, 49152)
	for i := range l {
		l[i] = float32((i*7919)%1000)/100 - 5
	}
	for _, s := range []kvtransfer.Sampling{{Logprobs: -1}, {Temperature: 1, Logprobs: -1}, {Temperature: 1, TopP: 0.9, TopK: 40, Logprobs: -1}, {Temperature: 1, TopP: 0.95, Logprobs: 5}} {
		b.Run(fmt.Sprintf("t%v k%d p%v l%d", s.Temperature, s.TopK, s.TopP, s.Logprobs), func(b *testing.B) {
			p := model.NewPicker(s, tok, nil, nil)
			for b.Loop() {
				p.Pick(l)
			}
		})
	}
}
