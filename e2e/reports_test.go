package e2e

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"quire/e2e/rig"
)

// Public reports about other engines, tried here as their users would. Each row names what was reported, what is done and what has to
// come out; a row whose trial needs more than one cluster (processes killed, disks full, messages held back) names the test that
// makes it.
type report struct {
	number int
	what   string // was reported
	do     string // what a user does
	expect string
	try    func(t *testing.T, c *reports) // nil: the test below makes it
	made   string                         // package and name of a test that tries it with more means
}

func reportTable() []report {
	return []report{
		{1, "an over-long prompt becomes one token, answered from stale pages", "fill the pool with a canary, then ask with a token too many", "400 that names the pool, no page taken, no canary", overLong, "e2e.TestIncidentForgedPool"},
		{2, "a prompt between pool and context waits for ever and blocks others", "ask such a prompt, then a short one", "400 at once, the short one is served, the mismatch refuses to start", betweenPoolAndContext, "e2e.TestIncidentAdvertised"},
		{3, "off-by-one disagreement at the limit", "ask with L-1, L and L+1 tokens at every door, streamed or not", "up to L with finish length, beyond it 400", exactLimit, "e2e/binary.TestUpLimitIsExact"},
		{4, "silent truncation", "ask an over-long prompt whose question is at its end, and for truncation", "400, nothing is cut", truncation, ""},
		{5, "no machine-readable code", "ask with a token too many", "code context_length_exceeded, status 400 at both doors", readableCode, ""},
		{6, "decode's pool fills by growth and freezes", "ask more at a time than the pool holds", "all are answered in full", manyAtOnce, ""},
		{7, "max_tokens of 0 crashes", "ask with max_tokens 0, -1, 2^31, 1.5 and \"10\"", "400, and the next request is served", oddMaxTokens, ""},
		{8, "a huge n exhausts memory", "ask with n 0, 1, 3 and a million", "1 is served, the others are 400", oddN, ""},
		{9, "logprobs of the whole vocabulary exhaust memory", "ask for logprobs 25, -1 and of all tokens", "400 above the cap", oddLogprobs, ""},
		{10, "characters split over tokens become U+FFFD", "stream text of many-byte characters", "what is streamed is the whole answer's text, no U+FFFD", splitCharacters, ""},
		{11, "stop strings are ignored by the disaggregated path", "ask with a stop string", "the text ends before it, streamed or not", stopStrings, ""},
		{12, "over the limit with stream gives 200", "ask so, streamed", "400 before any event", streamedLimit, ""},
		{13, "a failure mid-stream looks like success", "kill decode in the middle of a stream", "the stream goes on elsewhere, or an error and no [DONE]", nil, "e2e/binary.TestKillDecode"},
		{14, "an abort during the transfer reads as length", "cancel while the answer is made", "an error that says cancelled, no [DONE]", cancelled, "e2e/matrix.TestLateMessages"},
		{15, "pages are reused while a write is on its way", "leave during the hand-off and ask at once", "the next answer is that of a run alone", leaveAndAsk, "e2e/matrix.TestLateMessages"},
		{16, "prefill's death is not told, decode waits 300 s", "kill prefill after the reservation", "the reservation ends with its lease, the request is served elsewhere", nil, "e2e/binary.TestKillPrefill"},
		{17, "the router waits for decode though prefill failed", "have prefill refuse a job", "the refusal reaches the client at once", nil, "e2e.TestHandoffWrongJob"},
		{18, "pages released twice after a grammar error", "ask with a schema that is none", "400, every page free", badSchema, ""},
		{19, "pages leak when the other side never reports", "leave a hundred times during the hand-off", "every page free afterwards", leaveOften, "e2e/binary.TestDisconnectFreesEverything"},
		{20, "prefill's pages stay when decode's client left", "leave between prefill and the first token", "prefill's pages are free", prefillFree, ""},
		{21, "a lease expired and the pages were read anyway", "let the lease run out at every step", "refused, never read", nil, "e2e/matrix.TestLateMessages"},
		{22, "a page evicted before it was sent", "compute and free in any order", "pages stay until every frame is sealed", nil, "prefill.TestLoopAnyOrder"},
		{23, "a cancel without an id ends everything", "cancel with no id, a prefix, another's and an unknown one", "400 or 404, and nobody is affected", cancelNobody, ""},
		{24, "a retry reuses the transfer's id", "have an attempt refused", "a new attempt; the stale one is refused", nil, "e2e/matrix.TestStaleReferences"},
		{25, "an incompatible prefill is found by hanging", "run a prefill whose pages are laid out otherwise", "503 that names the difference", mismatch, "router.TestMissing"},
		{26, "a stream over the request subjects answers in the service's place", "make a stream over quire.>", "Quire says so and does not start", nil, "bus/jet.TestForeignStream"},
		{27, "JetStream is full or off", "fill the disk and the streams", "503 with the reason, recovery without a restart, nothing decoded without a journal", nil, "e2e/binary.TestFullDisk"},
		{28, "a message is delivered again while it is being worked on", "deliver every message twice, and late", "one hand-off, repetitions ignored", nil, "e2e/matrix.TestLateMessages"},
	}
}

// reports is the cluster that the trials share: a prefill pool smaller than the context, two tenants.
type reports struct {
	*rig.Rig
	limit int
}

const (
	acmeKey, umbraKey = "key-acme", "key-umbra"
	reportLimit       = 640 // tokens: prefill's pool
)

// ask asks over HTTP as tenant umbra.
func (c *reports) ask(t *testing.T, path string, body map[string]any) rig.Answer {
	t.Helper()
	return c.as(t, umbraKey, path, body)
}

func (c *reports) as(t *testing.T, key, path string, body map[string]any) rig.Answer {
	t.Helper()
	a, err := c.Ask(t.Context(), path, key, body)
	if err != nil {
		t.Fatalf("%v: %s", err, a.Body)
	}
	return a
}

// prompt is a conversation of exactly n tokens.
func (c *reports) prompt(t *testing.T, n int) rig.Prompt {
	t.Helper()
	p, err := c.Padded("My name is Ada.", "What is my name?", n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// idle says that nothing is held: every page of both pools is free.
func (c *reports) idle(t *testing.T) {
	t.Helper()
	if err := c.Quiet(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if err := rig.Wait(t.Context(), "prefill's pages", func() bool {
		p := c.Prefill.Stats().Figures.Pages
		return p.Total > 0 && p.Free == p.Total
	}); err != nil {
		t.Error(err)
	}
}

// TestReports tries them all, one after another, in one cluster. After each the cluster is idle and serves.
func TestReports(t *testing.T) {
	r := newRig(t, rig.Options{Keys: map[string]string{acmeKey: "acme", umbraKey: "umbra"}, MaxOpen: 8})
	ctx := t.Context()
	if err := errors.Join(r.AddDecode(ctx, 64), r.AddPrefill(ctx, reportLimit/16, nil), r.Ready(ctx)); err != nil {
		t.Fatal(err)
	}
	c := &reports{Rig: r, limit: reportLimit}
	tests := testNames(t)
	short := c.prompt(t, 40)
	alone := c.ask(t, "/v1/chat/completions", short.Chat(8, false))
	for i, rep := range reportTable() {
		if rep.number != i+1 || rep.try == nil && rep.made == "" {
			t.Errorf("report %d stands at %d", rep.number, i+1)
		}
		if rep.made != "" && !tests[rep.made] {
			t.Errorf("report %d: there is no test %s", rep.number, rep.made)
		}
		if rep.try == nil {
			continue
		}
		t.Run(strings.ReplaceAll(rep.what, " ", "_"), func(t *testing.T) {
			rep.try(t, c)
			c.idle(t)
			if a := c.ask(t, "/v1/chat/completions", short.Chat(8, false)); a.Text != alone.Text || a.Status != 200 {
				t.Errorf("afterwards the same question gets %d %q, before %q", a.Status, a.Text, alone.Text)
			}
		})
	}
}

// testNames are all tests of the module, as "package.TestName".
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel("..", filepath.Dir(path))
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				names[filepath.ToSlash(dir)+"."+fn.Name.Name] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
