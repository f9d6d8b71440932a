package script

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"quire/kvtransfer/page"
)

func TestPagesRoundTrip(t *testing.T) {
	for _, s := range [][]page.Slot{nil, {{Page: 3, Gen: 1}}, {{Page: 3, Gen: 1}, {Page: 4, Gen: 1}, {Page: 5, Gen: 2}, {Page: 4, Gen: 9}}} {
		f := parse("pages=" + Pages(s))
		if got := f.pages("pages"); f.done() != nil || len(got) != len(s) || len(s) > 0 && !reflect.DeepEqual(got, s) {
			t.Errorf("%v: %v, %v", s, got, f.err)
		}
	}
}

const reservation = "reservation attempt=ab000000000000000000000000000000-1 decode=decode/d1@2 tenant=t n=6 c=0 max=3 page-size=4 pages=0:1:3 lease=1000 deadline=5000 " +
	"hash=1100000000000000000000000000000000000000000000000000000000000000 layers=2 row-bytes=16 dim=4"

// A line that cannot be read is named, with its number; nothing is guessed.
func TestPlayRefuses(t *testing.T) {
	for line, says := range map[string]string{
		"claim by=prefill/p1@3":    `line 2: id: ""`,
		"claim by=p1 id=c1":        `line 2: by: "p1"`,
		"jump":                     `line 2: verb "jump"`,
		"at noon":                  `line 2: strconv`,
		"frame index=0 layers=0-2": `line 2: rows: ""`,
		"frame index=0 layers=0-2 rows=0-4 tag=01000000000000000000000000000000 colour=red": `line 2: colour: "red"`,
		"finish finish":           `line 2: finish: "finish"`,
		"rows differ=x":           `line 2: differ: "x"`,
		"owns pages=0:1:99999999": `line 2: pages:`,
		"owns pages=0":            `line 2: pages: "0"`,
		"manifest by=prefill/p1@3 n=6 c=0 sent=6 pages=2 frames=0 digest=zz": `line 2: digest: "zz"`,
	} {
		if _, err := Play(reservation + "\n" + line); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, err := Play("finish"); err == nil {
		t.Error("a script without a reservation plays")
	}
}

// FuzzPlay: whatever the lines are, playing them ends in an answer or an error.
func FuzzPlay(f *testing.F) {
	files, _ := filepath.Glob("../testdata/recorded/*")
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		_, body, _ := strings.Cut(string(b), "play\n")
		body, _, _ = strings.Cut(body, "\n----")
		f.Add(body)
	}
	f.Add(reservation + "\nfinish\nend code=cancelled detail=by its tenant")
	f.Fuzz(func(t *testing.T, text string) { _, _ = Play(text) })
}
