package router

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"quire/kvtransfer"
)

var (
	helpLine   = regexp.MustCompile(`^# HELP ([a-z][a-z0-9_]*) (\S.*\.)$`)
	typeLine   = regexp.MustCompile(`^# TYPE ([a-z][a-z0-9_]*) (counter|gauge|histogram)$`)
	sampleLine = regexp.MustCompile(`^([a-z][a-z0-9_]*)(\{[a-z_]+="(?:[^"\\]|\\.)*"(?:,[a-z_]+="(?:[^"\\]|\\.)*")*\})? (\S+)$`)
	notBase    = regexp.MustCompile(`_(ms|us|ns|millis|milliseconds|micros|microseconds|minutes|hours|kb|mb|kib|mib|kilobytes|megabytes|percent)(_|$)`)
	durations  = regexp.MustCompile(`_(latency|duration|oldest|age|time_to)(_|$)`)
)

// lint says what is wrong with an exposition, by the rules of promtool's check: each family once, HELP and TYPE before its
// samples, names with base units, _total on counters and on nothing else.
func lint(text string) (families map[string]string, wrong []string) {
	families = map[string]string{}
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	help, current := "", ""
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if m := helpLine.FindStringSubmatch(line); m != nil {
			help = m[1]
			continue
		}
		if m := typeLine.FindStringSubmatch(line); m != nil {
			current = m[1]
			if help != current {
				complain("%s: TYPE without HELP before it", current)
			}
			if _, twice := families[current]; twice {
				complain("%s: twice", current)
			}
			families[current] = m[2]
			wrong = append(wrong, lintName(current, m[2])...)
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			complain("no line of the text format: %q", line)
			continue
		}
		name := m[1]
		if families[current] == "histogram" {
			name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		}
		if name != current {
			complain("%s: a sample in family %s", m[1], current)
		}
		if _, err := strconv.ParseFloat(m[3], 64); err != nil {
			complain("%s: value %q", m[1], m[3])
		}
	}
	return families, wrong
}

func lintName(name, kind string) (wrong []string) {
	if !strings.HasPrefix(name, "quire_") {
		wrong = append(wrong, name+": no prefix quire_")
	}
	if total := strings.HasSuffix(name, "_total"); total != (kind == "counter") {
		wrong = append(wrong, fmt.Sprintf("%s: a %s, ends with _total: %t", name, kind, total))
	}
	if notBase.MatchString(name) {
		wrong = append(wrong, name+": not a base unit")
	}
	if kind == "histogram" && !strings.HasSuffix(name, "_seconds") && !strings.HasSuffix(name, "_bytes") {
		wrong = append(wrong, name+": a histogram without unit")
	}
	if durations.MatchString(name) && !strings.HasSuffix(name, "_seconds") {
		wrong = append(wrong, name+": a duration that is not in seconds")
	}
	for _, word := range []string{"_gauge", "_counter", "_histogram"} {
		if strings.Contains(name, word) {
			wrong = append(wrong, name+": says its type")
		}
	}
	return wrong
}

func TestLintCanFail(t *testing.T) {
	good := "# HELP quire_x_total Some x.\n# TYPE quire_x_total counter\nquire_x_total 1\n"
	if _, wrong := lint(good); len(wrong) > 0 {
		t.Errorf("%v", wrong)
	}
	for _, bad := range []string{
		"# TYPE quire_x_total counter\nquire_x_total 1\n",
		"quire_x 1\n",
		good + good,
		strings.ReplaceAll(good, "counter", "gauge"),
		strings.ReplaceAll(good, "quire_x_total", "quire_x"),
		strings.ReplaceAll(good, "quire_", "other_"),
		"# HELP quire_x_ms Some x.\n# TYPE quire_x_ms gauge\nquire_x_ms 1\n",
		"# HELP quire_latency Some x.\n# TYPE quire_latency gauge\nquire_latency 1\n",
		"# HELP quire_x Some x.\n# TYPE quire_x histogram\nquire_x_sum 1\n",
		"# HELP quire_x Some x.\n# TYPE quire_x gauge\nquire_y 1\n",
		"# HELP quire_x Some x.\n# TYPE quire_x gauge\nquire_x one\n",
		"# HELP quire_x Some x.\n# TYPE quire_x gauge\nquire_x{a=\"b} 1\n",
	} {
		if _, wrong := lint(bad); len(wrong) == 0 {
			t.Errorf("nothing wrong with\n%s", bad)
		}
	}
}

// exposed is /metrics of a router after one request of a tenant whose name would show.
func exposed(b *bench) string {
	st, err := b.router.Submit(b.Context(), textRequest("ann-the-tenant", 5))
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := drainStream(b.T, st); err != nil {
		b.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // of the bubble: the router counts at its next tick
	w := httptest.NewRecorder()
	NewHandler(b.router, HTTPConfig{Metrics: b.router.WriteMetrics}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// Every metric has HELP, TYPE and a unit; and nobody who is served shows.
func TestMetricsAreInTheFieldsStyle(t *testing.T) {
	withRouter(t, func(b *bench) {
		text := exposed(b)
		families, wrong := lint(text)
		if len(wrong) > 0 || len(families) < 30 {
			b.Errorf("%d families\n%s", len(families), strings.Join(wrong, "\n"))
		}
		if strings.Contains(text, "ann") {
			b.Error("a tenant in the metrics")
		}
	})
}

func TestHistogram(t *testing.T) {
	h := newHistogram([]float64{1, 2})
	h.observe(1, 1)
	h.observe(1.5, 2)
	h.observe(9, 1)
	var text strings.Builder
	exposition{&text}.histogram("quire_x_seconds", "Some x.", h)
	want := "# HELP quire_x_seconds Some x.\n# TYPE quire_x_seconds histogram\n" +
		"quire_x_seconds_bucket{le=\"1\"} 1\nquire_x_seconds_bucket{le=\"2\"} 3\nquire_x_seconds_bucket{le=\"+Inf\"} 4\n" +
		"quire_x_seconds_sum 13\nquire_x_seconds_count 4\n"
	if text.String() != want {
		t.Errorf("%s", text.String())
	}
	text.Reset()
	exposition{&text}.family("quire_y", "gauge", "Some y.", []sample{{[]string{"a", "q\"b\\s\nn"}, 1}})
	if want := `quire_y{a="q\"b\\s\nn"} 1`; !strings.Contains(text.String(), want) {
		t.Errorf("%s", text.String())
	}
}

// The dashboard asks only for metrics that there are, with labels that they have.
func TestDashboardAsksForWhatIsThere(t *testing.T) {
	raw, err := os.ReadFile("../docs/grafana/quire.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Query any }
		}
	}
	if err := json.Unmarshal(raw, &dashboard); err != nil {
		t.Fatal(err)
	}
	withRouter(t, func(b *bench) {
		families, _ := lint(exposed(b))
		var names []string
		for name, kind := range families {
			names = append(names, name)
			if kind == "histogram" {
				names = append(names, name+"_bucket", name+"_sum", name+"_count")
			}
		}
		asked := 0
		for _, p := range dashboard.Panels {
			if p.Type != "row" && len(p.Targets) == 0 {
				b.Errorf("%s: no target", p.Title)
			}
			for _, target := range p.Targets {
				for _, name := range regexp.MustCompile(`quire_[a-z0-9_]+`).FindAllString(target.Expr, -1) {
					if asked++; !slices.Contains(names, name) {
						b.Errorf("%s: no metric %s", p.Title, name)
					}
				}
			}
		}
		if asked < 20 {
			b.Errorf("%d metrics asked for", asked)
		}
	})
}

// What a panel groups by is a label of the metric.
func TestMetricLabels(t *testing.T) {
	withRouter(t, func(b *bench) {
		text := exposed(b)
		for _, want := range []string{`quire_pages{role="decode",id="d1",state="free"}`, `quire_worker_slots_free{role="decode",id="d1"}`,
			`quire_requests_finished_total{reason="` + string(kvtransfer.FinishLength) + `"} 1`} {
			if !strings.Contains(text, want) {
				b.Errorf("no %s in\n%s", want, text)
			}
		}
	})
}
