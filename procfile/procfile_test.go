package procfile

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The forms that foreman, goreman, hivemind and overmind document or read. Where they disagree, note says how; err is a piece of the
// error where this parser refuses what some of them would skip.
func TestParse(t *testing.T) {
	cases := []struct {
		name, in string
		want     []Entry
		err      string
		note     string
	}{
		{name: "one line", in: "web: bundle exec thin start -p $PORT\n", want: []Entry{{"web", "bundle exec thin start -p $PORT", 1}}, note: "foreman's own example"},
		{name: "two lines, order kept", in: "web: a\nworker: b\n", want: []Entry{{"web", "a", 1}, {"worker", "b", 2}}},
		{name: "no newline at the end", in: "web: a", want: []Entry{{"web", "a", 1}}},
		{name: "comments and blank lines", in: "# title\n\nweb: a\n  # indented\nworker: b\n", want: []Entry{{"web", "a", 3}, {"worker", "b", 5}}, note: "goreman names #; in the others such a line has no name and is skipped"},
		{name: "a commented-out entry", in: "#web: a\nb: c\n", want: []Entry{{"b", "c", 2}}},
		{name: "# inside a command is the shell's", in: "web: echo a # b\n", want: []Entry{{"web", "echo a # b", 1}}},
		{name: "no space after the colon", in: "web:a\n", want: []Entry{{"web", "a", 1}}, note: "foreman and goreman; hivemind and overmind want a space"},
		{name: "much space after the colon", in: "web:\t  a  b \n", want: []Entry{{"web", "a  b", 1}}},
		{name: "space before the colon", in: "web : a\n", want: []Entry{{"web", "a", 1}}, note: "goreman trims names"},
		{name: "dashes, underscores and digits", in: "web-1_a: x\n", want: []Entry{{"web-1_a", "x", 1}}, note: "[\\w-]+ in hivemind and overmind; older foremans know no dash"},
		{name: "colons in the command", in: "web: nats://127.0.0.1:4222 a:b\n", want: []Entry{{"web", "nats://127.0.0.1:4222 a:b", 1}}, note: "cut at the first colon by all"},
		{name: "CRLF", in: "web: a\r\nworker: b\r\n", want: []Entry{{"web", "a", 1}, {"worker", "b", 2}}, note: "foreman"},
		{name: "byte order mark", in: "\ufeffweb: a\n", want: []Entry{{"web", "a", 1}}},
		{name: "shell syntax is left alone", in: `web: FOO=1 ${QUIRE:-./quire} bus --x="a b" && true` + "\n", want: []Entry{{"web", `FOO=1 ${QUIRE:-./quire} bus --x="a b" && true`, 1}}},
		{name: "same name twice", in: "web: a\nweb: b\n", err: `line 2: the name "web" is already that of line 1`, note: "hivemind and overmind refuse; foreman starts both"},
		{name: "no entry", in: "# nothing\n", err: "no process", note: "goreman, hivemind, overmind refuse"},
		{name: "empty", in: "", err: "no process"},
		{name: "no colon", in: "web: a\nstart the rest\n", err: "line 2: no colon", note: "skipped by all runners"},
		{name: "no command", in: "web:\n", err: "line 1: web has no command", note: "skipped by foreman, hivemind, overmind; started empty by goreman"},
		{name: "bad name", in: "we b: a\n", err: `the name "we b"`, note: "goreman takes any name"},
		{name: "dot in a name", in: "web.1: a\n", err: `the name "web.1"`, note: "foreman numbers instances so"},
		{name: "overmind's include", in: "-f other/Procfile\n", err: "no colon", note: "overmind 2 alone"},
		{name: "a line too long", in: "web: " + strings.Repeat("x", MaxLine) + "\n", err: "a line may have 8192 bytes"},
		{name: "too many", in: many(MaxEntries + 1), err: "more than 64 processes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(c.in))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("want an error with %q, got %v (entries %v)", c.err, err, got)
				}
				return
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Fatalf("want %v, got %v, error %v", c.want, got, err)
			}
		})
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("p" + strings.Repeat("x", i%60) + string(rune('a'+i/60)) + ": true\n")
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	f.Add("web: a\n#c\nb: d")
	f.Add("a:b:c\r\n\r\n")
	f.Fuzz(func(t *testing.T, in string) {
		entries, err := Parse(strings.NewReader(in))
		if err != nil {
			return
		}
		var b strings.Builder
		for _, e := range entries {
			b.WriteString(e.Name + ": " + e.Command + "\n")
		}
		again, err := Parse(strings.NewReader(b.String()))
		if err != nil || len(again) != len(entries) {
			t.Fatalf("written out and read again: %d entries, then %d, error %v", len(entries), len(again), err)
		}
	})
}

// The project's own Procfile must be one that every runner reads alike.
func TestRootProcfile(t *testing.T) {
	f, err := os.Open("../Procfile")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries, err := Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
		if strings.ContainsAny(e.Command, "&|;<>`") {
			t.Errorf("%s: %q holds shell syntax that some runner takes differently", e.Name, e.Command)
		}
		if !strings.HasPrefix(e.Command, "exec ") {
			t.Errorf("%s: %q leaves a shell in between, which a runner's SIGTERM ends alone", e.Name, e.Command)
		}
		if strings.ContainsAny(e.Name, "-_") {
			t.Errorf("%s: older foremans know letters and digits only", e.Name)
		}
	}
	if want := []string{"bus", "router", "prefill1", "prefill2", "decode1", "decode2"}; !slices.Equal(names, want) {
		t.Fatalf("want %v, got %v", want, names)
	}
}

func TestParseEnv(t *testing.T) {
	in := "# c\nexport A=1\nB = two words # note\nC='a $X \\n#'\nD=\"x\\ty\\\"z\\\\\" # c\nE=\nF=a#b\n"
	want := []string{"A=1", "B=two words", "C=a $X \\n#", "D=x\ty\"z\\", "E=", "F=a#b"}
	got, err := ParseEnv(strings.NewReader(in))
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("want %q, got %q, error %v", want, got, err)
	}
	for _, bad := range []string{"A", "1-2=3", "A='x", "A=\"x\" y", "=1"} {
		if got, err := ParseEnv(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: want an error, got %q", bad, got)
		}
	}
}

func TestMergeEnv(t *testing.T) {
	got := MergeEnv([]string{"A=1", "B="}, []string{"A=2", "B=2", "C=3"})
	if want := []string{"A=1", "B=", "C=3"}; !slices.Equal(got, want) {
		t.Fatalf("want %q, got %q", want, got)
	}
}
