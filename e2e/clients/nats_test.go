package clients

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// frames reads the frames of an answer out of what `nats req` prints: content of the chunks, and the finish reason of the last.
func frames(t *testing.T, out string) (text, finish string) {
	t.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var f struct {
			Choices []struct {
				Delta   struct{ Content string }
				Message struct{ Content string }
			}
			Finish string `json:"finish_reason"`
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("frame %s: %v", line, err)
		}
		for _, c := range f.Choices {
			text += c.Delta.Content + c.Message.Content
		}
		if f.Finish != "" {
			finish = f.Finish
		}
	}
	return text, finish
}

// The banner's line for the nats CLI works as it is pasted.
func TestNATSBannerLine(t *testing.T) {
	m := regexp.MustCompile(`(?m)^ +(nats .*req quire.*'\{.*\}')`).FindStringSubmatch(cluster.banner)
	if m == nil {
		t.Fatalf("no line for the nats CLI in the banner:\n%s", cluster.banner)
	}
	out := shell(t, m[1])
	if text, finish := frames(t, out); text != answer || finish != "stop" {
		t.Errorf("%s\nanswered %q, %q, want %q, in:\n%s", m[1], text, finish, answer, out)
	}
}

// A request that is not streamed gets one message.
func TestNATSWhole(t *testing.T) {
	out := shell(t, "nats -s "+cluster.nats+` req quire.v1.default.chat --raw --timeout 60s '{"messages":[{"role":"system","content":"`+system+
		`"},{"role":"user","content":"`+question+`"}],"temperature":0}'`)
	if text, _ := frames(t, out); text != answer {
		t.Errorf("want %q in %s", answer, out)
	}
}

// Errors come in the headers of the services convention.
func TestNATSError(t *testing.T) {
	out := shell(t, "nats -s "+cluster.nats+` req quire.v1.default.chat --timeout 60s '{"messages":[{"role":"user","content":"x"}],"model":"gpt-4"}'`)
	for _, want := range []string{"Nats-Service-Error-Code: 404", "model_not_found"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

// Discovery lists the service, its operations and what they have done.
func TestNATSMicro(t *testing.T) {
	out := shell(t, "nats -s "+cluster.nats+" micro ls")
	name := regexp.MustCompile(`│ (quire\S*) `).FindStringSubmatch(out)
	if name == nil {
		t.Fatalf("no service of quire in:\n%s", out)
	}
	for _, verb := range []string{"info", "stats"} {
		out := shell(t, "nats -s "+cluster.nats+" micro "+verb+" "+name[1])
		for _, want := range []string{"chat", "completions", "models"} {
			if !strings.Contains(out, want) {
				t.Errorf("micro %s: %q is not in:\n%s", verb, want, out)
			}
		}
	}
	if out := shell(t, "nats -s "+cluster.nats+" micro ping"); !strings.Contains(out, name[1]) {
		t.Errorf("micro ping: no %s in:\n%s", name[1], out)
	}
}

// The journal can be read with the same tool; no prompt is in it.
func TestNATSJournal(t *testing.T) {
	out := shell(t, "nats -s "+cluster.nats+" stream ls --names")
	for _, want := range []string{"QUIRE_JOBS", "QUIRE_CTL", "QUIRE_JOURNAL"} {
		if !strings.Contains(out, want) {
			t.Errorf("stream %s is not in:\n%s", want, out)
		}
	}
	shell(t, "nats -s "+cluster.nats+" req quire.v1.default.chat --timeout 60s "+`'{"messages":[{"role":"system","content":"`+system+`"},{"role":"user","content":"`+question+`"}]}'`)
	for _, kind := range []string{"reserved", "verdict", "finished"} {
		out = shell(t, "nats -s "+cluster.nats+" sub 'quire.journal."+kind+".>' --stream QUIRE_JOURNAL --all --count 1")
		if !strings.Contains(out, `"kind":"`+kind+`"`) || strings.Contains(out, "bridge") || strings.Contains(out, "red key") {
			t.Errorf("the journal's %s, without words of a prompt, is not what came:\n%s", kind, out)
		}
	}
}
