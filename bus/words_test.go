package bus

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a.b.c", false}, {"a.b.c", "a.b", false}, {"a.*", "a.b", true}, {"a.*", "a", false},
		{"a.*.c", "a.b.c", true}, {"a.*.c", "a.b.d", false}, {"a.>", "a.b.c", true}, {"a.>", "a", false}, {">", "a", true}, {">", "", false},
	} {
		if got := Matches(c.pattern, c.subject); got != c.want {
			t.Errorf("Matches(%q, %q) = %v", c.pattern, c.subject, got)
		}
	}
}

// TestOverlapsHasAWitness compares Overlaps with a search for a subject that both patterns match.
func TestOverlapsHasAWitness(t *testing.T) {
	var all []string
	for _, a := range []string{"a", "b"} {
		all = append(all, a)
		for _, b := range []string{"a", "b"} {
			all = append(all, a+"."+b)
			for _, c := range []string{"a", "b"} {
				all = append(all, a+"."+b+"."+c)
			}
		}
	}
	pattern := rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*"}), 0, 2).Draw(t, "parts")
		parts = append(parts, rapid.SampledFrom([]string{"a", "b", "*", ">"}).Draw(t, "last"))
		return strings.Join(parts, ".")
	})
	rapid.Check(t, func(t *rapid.T) {
		x, y := pattern.Draw(t, "x"), pattern.Draw(t, "y")
		witness := ""
		for _, s := range all {
			if Matches(x, s) && Matches(y, s) {
				witness = s
			}
		}
		if got := Overlaps(x, y); got != (witness != "") {
			t.Fatalf("Overlaps(%q, %q) = %v, both match %q", x, y, got, witness)
		}
	})
}

func TestNamesStayWithinTheirStreams(t *testing.T) {
	for _, n := range []Names{{}, {Prefix: "lab"}, {Prefix: "a.b"}} {
		specs := map[string]StreamSpec{}
		for _, s := range append(SharedStreams(n), KVSpec(n, "d1", 7)) {
			specs[s.Name] = s
			if strings.ContainsAny(s.Name, ". *>/") {
				t.Errorf("stream name %q", s.Name)
			}
		}
		for stream, subject := range map[string]string{
			n.JobsStream(): n.Job("m", "p", "h-1"), n.ControlStream(): n.Control("decode", "d1", 7, "h-1"),
			n.KVStream("d1", 7): n.KV("d1", 7, "h-1"), n.JournalStream(): n.Journal("verdict", "d1"),
		} {
			if err := CheckSubject(subject); err != nil {
				t.Error(err)
			}
			for name, spec := range specs {
				if got := Matches(spec.Subjects[0], subject); got != (name == stream) {
					t.Errorf("%s taken by %s: %v", subject, name, got)
				}
			}
		}
		// What is asked, answered or beaten must never be stored: a stream would answer in a service's stead.
		for _, subject := range []string{
			n.API("acme", "chat"), n.Reserve("d1", 7), n.Resend("d1", 7), n.Router("r1", 7, "cancel"), n.Reply("r1", 7, "h-1"), n.Heartbeat("decode", "d1"),
		} {
			for name, spec := range specs {
				if Overlaps(spec.Subjects[0], subject) {
					t.Errorf("stream %s takes %s", name, subject)
				}
			}
		}
	}
}

func TestTenantOf(t *testing.T) {
	for _, c := range []struct{ pattern, subject, want string }{
		{"quire.v1.*.chat", "quire.v1.acme.chat", "acme"}, {"quire.v1.default.chat", "quire.v1.default.chat", "default"},
		{"a.b.v1.*.chat", "a.b.v1.acme.chat", "acme"}, {"x", "x", ""},
	} {
		if got := TenantOf(c.pattern, c.subject); got != c.want {
			t.Errorf("TenantOf(%q, %q) = %q", c.pattern, c.subject, got)
		}
	}
}

func TestCallRoom(t *testing.T) {
	sent := 0
	c := &Call{Room: 200, Reach: func(h map[string][]string, data []byte) error {
		if sent++; headerSize(h)+len(data) > 200 {
			t.Errorf("%d bytes of headers and %d of data", headerSize(h), len(data))
		}
		return nil
	}}
	if err := c.Send(map[string][]string{"A": {"b"}}, make([]byte, 190)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v", err)
	}
	if err := c.Fail(500, "text", make([]byte, 190), true); err != nil || sent != 2 {
		t.Errorf("%d messages, error %v: the headers matter more than the data", sent, err)
	}
}
