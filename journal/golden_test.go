package journal

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"quire/kvtransfer"
)

// The files in testdata/records are what versions of Quire wrote: a line for each record, never changed and never taken away.
// Every build reads them, and checks them as one chain.
func TestGoldenRecords(t *testing.T) {
	for name, want := range map[string][]Record{"schema1": {samples()[1]}, "schema2": samples()} {
		b, err := os.ReadFile("testdata/records/" + name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%s: %d lines, %d records", name, len(lines), len(want))
		}
		var check Checker
		for i, line := range lines {
			got, err := check.Check([]byte(line), nil)
			if err != nil && got.Kind != KindStopped && !strings.Contains(err.Error(), "after the end") {
				t.Errorf("%s line %d: %v", name, i+1, err)
			}
			r := want[i]
			r.Schema, r.Kind, r.Service, r.Epoch, r.Counter, r.Prev = int(name[len(name)-1]-'0'), r.Facts.kind(), "decode-d1", 5, got.Counter, got.Prev
			if diff := cmp.Diff(r, got); diff != "" {
				t.Errorf("%s line %d: %s", name, i+1, diff)
			}
		}
	}
}

// What is written today is the last of those files, byte for byte: another form is another schema, with a file of its own.
func TestRecordsAreWrittenAsTheGoldenFileHasThem(t *testing.T) {
	b, err := os.ReadFile("testdata/records/schema2")
	if err != nil {
		t.Fatal(err)
	}
	c := NewChain(kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 5})
	var out strings.Builder
	for _, r := range samples() {
		line, next, err := c.Next(r)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(line, '\n'))
		c = next
	}
	if diff := cmp.Diff(string(b), out.String()); diff != "" {
		t.Error(diff)
	}
}
