package journal

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"quire/kvtransfer"
)

// agree holds the quick way of reading to the one by encoding/json: what it reads, that reads the same.
func agree(t *testing.T, b []byte) (quick bool) {
	t.Helper()
	got, ok := fast(b)
	if !ok {
		return false
	}
	want, err := slow(b)
	if err != nil {
		t.Fatalf("%q is read, and is no record: %v", b, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: %s", b, cmp.Diff(want, got))
	}
	return true
}

// Every kind of record is read the quick way as it is written.
func TestFastReadsWhatIsWritten(t *testing.T) {
	c := NewChain(kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 5})
	for _, r := range samples() {
		b, next, err := c.Next(r)
		if err != nil {
			t.Fatal(err)
		}
		c = next
		_, unknown := r.Facts.(Unknown)
		if agree(t, b) == unknown {
			t.Errorf("%s: quick %t", b, unknown)
		}
	}
	if !agree(t, []byte(old())) {
		t.Error("a record of schema 1 is not read the quick way")
	}
}

// What is not written here is left to encoding/json.
func TestFastLeavesTheRest(t *testing.T) {
	good, _, err := Chain{Service: "decode-d1"}.Next(samples()[2])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{`"kind"`, ` "kind"`}, {`"finish":"stop"`, `"finish":"st\u006fp"`}, {`"finish":"stop"`, `"finish":"stöp"`}, {`"finish":"stop"`, `"finish":null`},
		{`"prompt":600`, `"prompt":600,"prompt":601`}, {`"prompt":600`, `"PROMPT":600`}, {`"prompt":600`, `"prompt":6e2`}, {`"prompt":600`, `"prompt":0600`},
		{`"prompt":600`, `"prompt":99999999999999999999`}, {`"replies":4`, `"replies":4294967296`}, {`"prompt":600`, `"prompt":600.0`}, {`"prev":"00`, `"prev":"0`},
		{`"epoch":0`, `"epoch":-1`}, {`"facts":{`, `"facts":[`}, {`"schema":2`, `"schema":3`}, {`}}`, `}}x`}, {`}}`, `}`}, {`"attempt":2,`, ``},
	} {
		b := strings.Replace(string(good), c[0], c[1], 1)
		if b == string(good) {
			t.Fatalf("no %s in %s", c[0], good)
		}
		if quick := agree(t, []byte(b)); quick && c[1] != "" {
			t.Errorf("%s is read the quick way", b)
		}
	}
	for i := range good {
		agree(t, good[:i])
	}
}

// FuzzFast: the two ways of reading never differ.
func FuzzFast(f *testing.F) {
	for _, r := range samples() {
		b, _, err := Chain{Service: "decode-d1", Epoch: 1}.Next(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(old()))
	f.Fuzz(func(t *testing.T, b []byte) { agree(t, b) })
}

func BenchmarkDecode(b *testing.B) {
	var all [][]byte
	for _, r := range samples() {
		if _, unknown := r.Facts.(Unknown); unknown {
			continue
		}
		one, _, err := Chain{Service: "decode-d1", Epoch: 1}.Next(r)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, one)
	}
	for name, read := range map[string]func([]byte) error{
		"quick": func(b []byte) error { _, err := Decode(b); return err },
		"json":  func(b []byte) error { _, err := slow(b); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, one := range all {
					if err := read(one); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N*len(all))/b.Elapsed().Seconds(), "records/s")
		})
	}
}
