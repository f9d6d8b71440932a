package replay

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func zipped(lines string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(lines))
	z.Close()
	return b.Bytes()
}

// FuzzBundle: whatever the lines of a bundle are, reading them ends in an answer or an error.
func FuzzBundle(f *testing.F) {
	w := newWorld(&testing.T{})
	w.play(plan{id: "one", tenant: "a", n: 3, max: 2, ok: true, output: 1})
	f.Add(`{"format":"quire journal bundle","version":1,"stream":"Q"}` + "\n" + `{"seq":1,"time":"2026-09-01T12:00:00Z","subject":"s","data":{}}` + "\n")
	f.Add(`{"format":"quire journal bundle","version":2,"stream":"Q"}` + "\n")
	f.Add("")
	var all bytes.Buffer
	all.WriteString(`{"format":"quire journal bundle","version":1,"stream":"Q"}` + "\n")
	for _, it := range w.items {
		all.WriteString(`{"seq":` + string(rune('0'+it.Sequence%10)) + `,"time":"2026-09-01T12:00:00Z","subject":"` + it.Subject + `","data":` + string(it.Data) + "}\n")
	}
	f.Add(all.String())
	f.Fuzz(func(t *testing.T, lines string) {
		path := filepath.Join(t.TempDir(), "b")
		if err := os.WriteFile(path, zipped(lines), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := Read(t.Context(), Bundle{path}, nil)
		if err != nil {
			return
		}
		p.Verify()
		for _, q := range p.Requests {
			_ = p.Tell(q, 0).Text()
		}
		p.Exposure(time.Time{}, time.Time{}, "")
	})
}

// FuzzPast: facts that fit together in no way are findings, never a panic.
func FuzzPast(f *testing.F) {
	w := newWorld(&testing.T{})
	w.play(plan{id: "one", tenant: "a", n: 3, max: 2, ok: true, output: 1})
	for _, it := range w.items {
		f.Add(it.Data, it.Data, it.Data)
	}
	f.Add(w.items[3].Data, w.items[6].Data, w.items[8].Data)
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		w := &world{t: t}
		for i, data := range [][]byte{a, b, c} {
			w.items = append(w.items, Item{Sequence: uint64(i + 1), Data: data})
		}
		p, err := Read(t.Context(), w, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.Verify()
		for _, q := range p.Requests {
			_ = p.Tell(q, 0).Text()
			p.Diff(q, p.Requests[0])
		}
		p.Exposure(time.Time{}, time.Time{}, "")
		p.Pools(Moment{Sequence: 2})
		for _, a := range p.Attempts {
			_, _ = p.Script(a, nil)
		}
	})
}
