package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/e2e/rig"
	"quire/e2e/rogue"
	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
	"quire/replay"
)

var bundleDir = flag.String("bundle", "", "write the journal of the audited scene into this folder as journal.qjb, with the cluster's public keys beside it")

// memory is an engine that notes, for every slot of every page and every layer, who wrote it last, and for every reader whose
// slots it read. It knows nothing of hand-offs, gates or journals.
type memory struct {
	model.Engine
	mu    sync.Mutex
	cells map[cell]page.Owner
	reads map[page.Owner]map[page.Owner]bool // reader -> others whose rows it read
}

type cell struct {
	page          page.ID
	offset, layer int
}

func (m *memory) Write(g page.Grant, r model.Range, src []byte) error {
	m.mu.Lock()
	for row := r.RowFrom; row < r.RowTo; row++ {
		for l := r.LayerFrom; l < r.LayerTo; l++ {
			m.cells[cell{g.Slot(row / g.PageSize()).Page, row % g.PageSize(), l}] = g.Owner()
		}
	}
	m.mu.Unlock()
	return m.Engine.Write(g, r, src)
}

func (m *memory) Step(work []model.Work) ([]model.Result, error) {
	m.mu.Lock()
	for _, w := range work {
		m.read(w.View, m.Info().Layers)
		for row := w.Grant.From(); w.Grant.Valid() && row < w.Grant.To(); row++ {
			for l := range m.Info().Layers {
				m.cells[cell{w.Grant.Slot(row / w.Grant.PageSize()).Page, row % w.Grant.PageSize(), l}] = w.Grant.Owner()
			}
		}
	}
	m.mu.Unlock()
	return m.Engine.Step(work)
}

func (m *memory) WitnessRows(v page.View, tokens []int32, from int) (int, error) {
	m.mu.Lock()
	m.read(v, 1)
	m.mu.Unlock()
	return m.Engine.WitnessRows(v, tokens, from)
}

func (m *memory) Zero(pages []page.ID) error {
	m.mu.Lock()
	for c := range m.cells {
		if slices.Contains(pages, c.page) {
			delete(m.cells, c)
		}
	}
	m.mu.Unlock()
	return m.Engine.Zero(pages)
}

// read notes whose rows a view shows. The lock is held.
func (m *memory) read(v page.View, layers int) {
	for row := range v.Rows() {
		for l := range layers {
			who, ok := m.cells[cell{v.Slot(row / v.PageSize()).Page, row % v.PageSize(), l}]
			if !ok || who == v.Owner() {
				continue
			}
			if m.reads[v.Owner()] == nil {
				m.reads[v.Owner()] = map[page.Owner]bool{}
			}
			m.reads[v.Owner()][who] = true
		}
	}
}

// lies is what the rogue does to two of the tenants: of umbra's prompts it sends one row and says so, of zeta's it sends 40 rows
// and says that they were all.
func lies(p rogue.Prompt) rogue.Plan {
	switch p.Tenant {
	case "umbra":
		return rogue.Plan{Rows: 1, Manifest: func(m *kvtransfer.Manifest) { m.N, m.Sent, m.Pages = 1, 1, 1 }}
	case "zeta":
		n := len(p.Tokens)
		return rogue.Plan{Rows: 40, Manifest: func(m *kvtransfer.Manifest) { m.N, m.Sent, m.Pages = n, n, (n+15)/16 }}
	}
	return rogue.Plan{}
}

// TestIncidentAudit plays requests of four tenants, two of whose hand-offs are lied about, while an engine notes whose rows each
// sequence read. What the audit finds in the journal is the same set: no more, no fewer, and each with the same victims. In the
// build as shipped the set is empty.
func TestIncidentAudit(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	r, err := rig.New(ctx, rig.Options{Dir: dir, Keys: map[string]string{"acme": "acme", "bel": "bel", "umbra": "umbra", "zeta": "zeta"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.AddDecode(ctx, 48); err != nil {
		t.Fatal(err)
	}
	mem := &memory{Engine: r.DecodeEngine.Engine, cells: map[cell]page.Owner{}, reads: map[page.Owner]map[page.Owner]bool{}}
	r.DecodeEngine.Engine = mem
	if err := r.AddRogue(ctx, 48, lies); err != nil {
		t.Fatal(err)
	}
	if err := r.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	asked := []struct {
		tenant string
		n      int
	}{{"umbra", 80}, {"acme", 300}, {"umbra", 250}, {"bel", 120}, {"zeta", 200}, {"acme", 64}, {"bel", 90}, {"umbra", 420}, {"zeta", 330}, {"acme", 210}}
	answered := map[string]bool{} // ids of whole answers
	for i, q := range asked {
		p := must(r.Padded(fmt.Sprintf("Number %d is %s.", i, q.tenant), "What is my name?", q.n))(t)
		a := must(r.Ask(ctx, "/v1/chat/completions", q.tenant, p.Chat(8, false)))(t)
		if a.Status == 200 {
			answered[answerID(t, a)] = true
		}
		if err := r.Quiet(ctx, uint64(i)+1); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]string{}
	mem.mu.Lock()
	for reader, victims := range mem.reads {
		if id := fmt.Sprintf("%x", reader.Handoff); answered[id] {
			for v := range victims {
				want[id] = append(want[id], v.String())
			}
			slices.Sort(want[id])
		}
	}
	mem.mu.Unlock()
	past := record(t, r, dir, len(asked))
	if *bundleDir != "" {
		export(t, r, dir)
	}
	exposure := past.Exposure(time.Time{}, time.Time{}, "")
	t.Log(exposure.Notice)
	got := map[string][]string{}
	for _, x := range exposure.Exposed {
		for _, v := range x.Victims {
			got[x.Request] = append(got[x.Request], v.Handoff)
		}
		slices.Sort(got[x.Request])
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the audit finds %d exposed responses %v\nthe engine saw %d %v", len(got), got, len(want), want)
	}
	if exposure.Answers != len(answered) || !exposure.Complete {
		t.Errorf("%d answers in the record, %d were given; gaps: %v", exposure.Answers, len(answered), exposure.Gaps)
	}
	checkExpected(t, len(want), past.Verify())
}

// checkExpected holds the scene to what this build is: with every guard removed four of the answers are exposed, and the record
// itself shows that the gate let them pass; as shipped none is, and no rule is broken.
func checkExpected(t *testing.T, exposed int, v replay.Verification) {
	broken := map[string]bool{}
	for _, f := range v.Findings {
		if f.Level == replay.Broken {
			broken[f.Rule] = true
		}
	}
	rules := slices.Sorted(maps.Keys(broken))
	if os.Getenv("QUIRE_AUDIT_TWINS") == "" {
		if exposed != 0 || len(rules) > 0 {
			t.Errorf("as shipped: %d responses exposed, rules broken: %v\n%v", exposed, rules, v.Findings)
		}
		return
	}
	if exposed != 4 || !slices.Equal(rules, []string{"gate", "rows"}) {
		t.Errorf("without guards: %d responses exposed, rules broken: %v\n%v", exposed, rules, v.Findings)
	}
}

// record reads the journal once it has the end of every request and every page is free again.
func record(t *testing.T, r *rig.Rig, dir string, requests int) *replay.Past {
	ring := must(keys.Public(filepath.Join(dir, "keys")))(t)
	conn := must(jet.Connect(t.Context(), jet.ConnectOptions{URLs: []string{r.NATS}}))(t)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		p := must(replay.Read(ctx, replay.Stream{Reader: conn, Name: bus.Names{}.JournalStream()}, ring))(t)
		ended := 0
		for _, q := range p.Requests {
			if q.Finished != nil {
				ended++
			}
		}
		free := true
		for _, pool := range p.Pools(replay.Moment{Sequence: p.Extent.Last}) {
			free = free && len(pool.Owners) == 0
		}
		if ended == requests && free {
			return p
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d requests have ended in the journal, pages free: %t", ended, requests, free)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// export keeps the journal for people.
func export(t *testing.T, r *rig.Rig, dir string) {
	conn := must(jet.Connect(t.Context(), jet.ConnectOptions{URLs: []string{r.NATS}}))(t)
	defer conn.Close()
	_, err := replay.Export(t.Context(), replay.Stream{Reader: conn, Name: bus.Names{}.JournalStream()}, nil, filepath.Join(*bundleDir, "journal.qjb"))
	if err != nil {
		t.Fatal(err)
	}
	public := must(os.ReadFile(filepath.Join(dir, "keys", "cluster.json")))(t)
	if err := os.WriteFile(filepath.Join(*bundleDir, "cluster.json"), public, 0o644); err != nil {
		t.Fatal(err)
	}
}

// answerID is the hand-off's id in what the client got.
func answerID(t *testing.T, a rig.Answer) string {
	var body struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(a.Body), &body); err != nil || len(body.ID) < 32 {
		t.Fatalf("%v: %s", err, a.Body)
	}
	return body.ID[strings.LastIndexByte(body.ID, '-')+1:]
}

// TestIncidentAuditTwins plays the same without gate, witness and zeroing: the audit finds every response that leaked, and only
// those.
func TestIncidentAuditTwins(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program a second time")
	}
	bin := filepath.Join(t.TempDir(), "twins.test")
	build := exec.Command("go", "test", "-c", "-overlay", "e2e/testdata/twins/overlay.json", "-o", bin, "./e2e/incident")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with twins: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), bin, "-test.v", "-test.run", "^TestIncidentAudit$")
	cmd.Env = append(os.Environ(), "QUIRE_KEEP=", "QUIRE_AUDIT_TWINS=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Errorf("%s", out)
	} else if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "responses in the record") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
