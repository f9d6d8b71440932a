package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tapeOf is a source of sealed messages.
type tapeOf []Item

func (s tapeOf) Items(_ context.Context, fn func(Item) error) (Extent, error) {
	for _, it := range s {
		if err := fn(it); err != nil {
			return Extent{}, err
		}
	}
	return Extent{Messages: uint64(len(s))}, nil
}

func TestBundle(t *testing.T) {
	w := incident(t)
	path := filepath.Join(t.TempDir(), "journal.qjb")
	n, err := Export(t.Context(), w, nil, path)
	if err != nil || n.Messages != uint64(len(w.items)) || n.Taped != 0 || !IsBundle(path) {
		t.Fatalf("%d records, %v", n, err)
	}
	p, err := Read(t.Context(), Bundle{path}, ring{})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(p.Exposure(time.Time{}, time.Time{}, ""))
	b, _ := json.Marshal(w.read().Exposure(time.Time{}, time.Time{}, ""))
	if string(a) != string(b) {
		t.Errorf("bundle says\n%s\nstream says\n%s", a, b)
	}
	if _, err := Export(t.Context(), w, nil, path); err == nil {
		t.Error("a file is overwritten")
	}
}

// A bundle with the tape has its messages as they are, and the journal reads the same.
func TestBundleWithTape(t *testing.T) {
	w := incident(t)
	path := filepath.Join(t.TempDir(), "journal.qjb")
	sealed := tapeOf{{Sequence: 2, Subject: "quire.tape.acme.aa", Data: []byte{1, 2, 0xff}}, {Sequence: 9, Subject: "quire.tape.acme.aa-1.0", Data: []byte("x")}}
	if n, err := Export(t.Context(), w, sealed, path); err != nil || n.Taped != 2 || n.Messages != uint64(len(w.items)) {
		t.Fatalf("%+v, %v", n, err)
	}
	if p, err := Read(t.Context(), Bundle{path}, ring{}); err != nil || p.Records != len(w.items) {
		t.Errorf("%v", err)
	}
	var got []string
	take := func(subject string, data []byte) error {
		got = append(got, fmt.Sprintf("%s=%x", subject, data))
		return nil
	}
	if err := (Bundle{path}).Tape(t.Context(), "quire.tape.acme.aa", take); err != nil || strings.Join(got, " ") != "quire.tape.acme.aa=0102ff" {
		t.Errorf("%v, %v", got, err)
	}
	if err := (Bundle{path}).Tape(t.Context(), "quire.tape.acme.aa-1.*", take); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

// lines is a bundle of these lines, with an end that fits them.
func lines(head string, messages ...string) string {
	text := head + "\n"
	taped := 0
	for _, m := range messages {
		text += m + "\n"
		taped += strings.Count(m, `"tape":true`)
	}
	sum := sha256.Sum256([]byte(text))
	end := fmt.Sprintf(`{"end":true,"first":1,"last":9,"messages":%d,"sha256":%q}`, len(messages)-taped, hex.EncodeToString(sum[:]))
	if taped > 0 {
		end = strings.Replace(end, `,"sha256"`, fmt.Sprintf(`,"taped":%d,"sha256"`, taped), 1)
	}
	return text + end + "\n"
}

const (
	head1 = `{"format":"quire journal bundle","version":1,"stream":"Q"}`
	head2 = `{"format":"quire journal bundle","version":2,"stream":"Q"}`
	one   = `{"seq":1,"time":"2026-09-01T12:00:00Z","subject":"s","data":{}}`
	two   = `{"seq":2,"time":"2026-09-01T12:00:00Z","subject":"s","text":"YQ=="}`
	taped = `{"seq":1,"time":"2026-09-01T12:00:00Z","subject":"quire.tape.a.b","text":"YQ==","tape":true}`
)

func TestBundleRefuses(t *testing.T) {
	read := func(b []byte, l bundleLimits) error {
		_, err := readBundle(t.Context(), bytes.NewReader(b), l, func(Item, bool) error { return nil })
		return err
	}
	for name, good := range map[string]string{"version 1": lines(head1, one, two), "version 2": lines(head2, one, two, taped), "empty": lines(head1)} {
		if err := read(zipped(good), defaultLimits); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	whole := lines(head1, one, two)
	long := strings.Replace(one, `"data":{}`, `"text":"`+strings.Repeat("QUFB", 1000)+`"`, 1)
	for _, c := range []struct {
		name, text string
		says       error
		limits     bundleLimits
	}{
		{"newer", lines(strings.Replace(head1, `:1`, `:3`, 1), one), ErrBundle, defaultLimits},
		{"older than any", lines(strings.Replace(head1, `:1`, `:0`, 1), one), ErrBundle, defaultLimits},
		{"another format", lines(strings.Replace(head1, "journal", "photo", 1), one), ErrBundle, defaultLimits},
		{"a field more in the head", lines(strings.Replace(head1, `"stream"`, `"run":"sh","stream"`, 1), one), ErrBundle, defaultLimits},
		{"a field more in a message", lines(head1, strings.Replace(one, `"seq"`, `"path":"/etc","seq"`, 1)), ErrBundle, defaultLimits},
		{"data and text", lines(head1, strings.Replace(two, `"text"`, `"data":{},"text"`, 1)), ErrBundle, defaultLimits},
		{"a sequence again", lines(head1, one, one), ErrBundle, defaultLimits},
		{"a sequence back", lines(head1, two, one), ErrBundle, defaultLimits},
		{"a tape in version 1", lines(head1, one, taped), ErrBundle, defaultLimits},
		{"the journal behind the tape", lines(head2, one, taped, two), ErrBundle, defaultLimits},
		{"no JSON", lines(head1, "x"), ErrBundle, defaultLimits},
		{"no signature", lines(head1, strings.Replace(one, `"data"`, `"sig":"zz","data"`, 1)), ErrBundle, defaultLimits},
		{"an edit", strings.Replace(whole, `"data":{}`, `"data":[]`, 1), ErrCut, defaultLimits},
		{"a message less", strings.Replace(whole, two+"\n", "", 1), ErrCut, defaultLimits},
		{"no end", strings.Join(strings.Split(whole, "\n")[:3], "\n") + "\n", ErrCut, defaultLimits},
		{"something behind the end", whole + one + "\n", ErrCut, defaultLimits},
		{"a long line", lines(head1, long), ErrCut, bundleLimits{line: 1000, text: 1 << 20, messages: 9}},
		{"a long text", lines(head1, long), ErrCut, bundleLimits{line: 1 << 20, text: 2000, messages: 9}},
		{"many messages", whole, ErrBundle, bundleLimits{line: 1 << 20, text: 1 << 20, messages: 1}},
		{"nothing", "", ErrBundle, defaultLimits},
	} {
		if err := read(zipped(c.text), c.limits); !errors.Is(err, c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	z := zipped(whole)
	for i := range z {
		if err := read(z[:i], defaultLimits); !errors.Is(err, ErrCut) && !errors.Is(err, ErrBundle) {
			t.Errorf("cut at byte %d of %d: %v", i, len(z), err)
		}
	}
	if err := read(append(bytes.Clone(z), z...), defaultLimits); !errors.Is(err, ErrCut) {
		t.Errorf("twice: %v", err)
	}
}

// A file that unpacks without end is refused at the limit, and takes no more memory than a line may have.
func TestBundleBomb(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bomb")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := io.WriteString(z, head1+"\n"); err != nil {
		t.Fatal(err)
	}
	a := bytes.Repeat([]byte("a"), 1<<20)
	for range 2*defaultLimits.line/len(a) + 1 {
		if _, err := z.Write(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), Bundle{path}, nil); !errors.Is(err, ErrCut) || !strings.Contains(err.Error(), fmt.Sprintf("limit %d", defaultLimits.line)) {
		t.Errorf("%v", err)
	}
}
