package journal

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// samples is one record of each kind.
func samples() []Record {
	key := kvtransfer.Key{ID: kvtransfer.HandoffID{0xab, 1}, Attempt: 2}
	slots := Slots([]page.Slot{{Page: 7, Gen: 3}, {Page: 0, Gen: 9}})
	return []Record{
		{Key: key, Tenant: "acme", At: 11, Facts: Reserved{Reservation: Hash{1}, Router: "router/r1@4", N: 600, MaxTokens: 16,
			Digest: Hash{2}, PageSize: 16, Pages: slots, LeaseMicros: 10_000_000, Model: Hash{3}, Layout: Hash{4}, Compute: Hash{5}}},
		{Key: key, Tenant: "acme", At: 22, Facts: Verdict{Path: "received", Code: "handoff_count",
			Detail: "token count: reserved 600, manifest 1", Reservation: Hash{1}, Claim: ID{6}, N: 600, Sent: 1, Frames: 1, Digest: Hash{7}, Pages: slots}},
		{Key: key, Tenant: "acme", At: 33, Facts: Finished{Finish: "stop", Witness: "agreed", Prompt: 600, Output: 9, Replies: 4, Pages: 2}},
		{At: 1, Facts: Started{Version: "0.1.0", Model: "m", PageSize: 16, Pages: 64, Layers: 4, MaxModelLen: 2048, Weights: Hash{3}}},
		{Key: key, Tenant: "acme", Facts: Job{Decode: "decode/d1@5", Prompt: 600, MaxTokens: 16, Limit: 2048, LimitBy: "model context", Sequence: 7}},
		{Key: key, Tenant: "acme", Facts: Claimed{Claim: ID{6}, Prefill: "prefill/p1@2"}},
		{Key: key, Tenant: "acme", Facts: Sent{State: "done", Claim: ID{6}, N: 600, Rows: 600, Frames: 3, Pages: slots}},
		{Key: key, Tenant: "acme", Facts: Refused{What: "frame", Count: 1, Index: 3}},
		{Key: key, Tenant: "acme", Facts: Witness{Result: "agreed", Read: 600, Written: Spans{{0, 600}}, FirstToken: true}},
		{At: 9, Facts: Zeroed{Pages: Spans{{0, 1}, {7, 8}}, ReleasedMicros: 8}},
		{At: 10, Facts: Checkpoint{}},
		{At: 11, Facts: Stopped{Lost: 2}},
		{Key: key, Tenant: "acme", At: 44, Facts: Unknown{Kind: "copied", Raw: json.RawMessage(`{"frame":3}`)}},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	c := NewChain(kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 5})
	for _, r := range samples() {
		b, next, err := c.Next(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		r.Schema, r.Kind, r.Service, r.Epoch, r.Counter, r.Prev = Schema, r.Facts.kind(), "decode-d1", 5, next.Counter, c.Last
		if diff := cmp.Diff(r, got); diff != "" {
			t.Error(diff)
		}
		c = next
	}
}

// old is a verdict as schema 1 wrote it.
func old() string {
	zeros := strings.Repeat("0", 62)
	return `{"schema":1,"kind":"verdict","service":"decode-d1","epoch":5,"counter":1,"prev":"00` + zeros + `","at_us":22,` +
		`"handoff":"ab010000000000000000000000000000","attempt":2,"tenant":"acme","facts":{"path":"received","ok":false,` +
		`"code":"handoff_count","detail":"token count: reserved 600, manifest 1","reservation":"01` + zeros + `",` +
		`"claim":"06000000000000000000000000000000","n":600,"c":0,"sent":1,"frames":1,"digest":"07` + zeros + `","pages":[[7,3],[0,9]]}}`
}

// What schema 1 wrote stays readable as it is.
func TestOldRecordStaysReadable(t *testing.T) {
	got, err := Decode([]byte(old()))
	if err != nil {
		t.Fatal(err)
	}
	want := samples()[1]
	want.Schema, want.Kind, want.Service, want.Epoch, want.Counter = 1, KindVerdict, "decode-d1", 5, 1
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if b, err := got.Encode(); err != nil || string(b) != old() {
		t.Errorf("written again: %s, %v", b, err)
	}
}

// Pages are written as runs, and read as pages.
func TestPagesAreRuns(t *testing.T) {
	pages := Pages{{4, 1}, {5, 1}, {6, 1}, {7, 2}, {3, 9}}
	b, err := json.Marshal(pages)
	if err != nil || string(b) != "[[4,1,3],[7,2],[3,9]]" {
		t.Fatalf("%s, %v", b, err)
	}
	var got Pages
	if err := json.Unmarshal(b, &got); err != nil || cmp.Diff(pages, got) != "" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"[[1]]", "[[1,2,3,4]]", "[[1,2,0]]", "[[1,2,99999999]]", "[[99999999,2]]", "[[0,1,1048576],[0,1]]", "[1]"} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is read as %d pages", bad, len(got))
		}
	}
}

func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Spans
		in := map[int]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "spans") {
			from := rapid.IntRange(0, 30).Draw(t, "from")
			to := rapid.IntRange(0, 30).Draw(t, "to")
			s = s.Add(from, to)
			for i := from; i < to; i++ {
				in[i] = true
			}
		}
		if s.Rows() != len(in) {
			t.Fatalf("%v has %d rows, want %d", s, s.Rows(), len(in))
		}
		from, to := rapid.IntRange(0, 30).Draw(t, "from"), rapid.IntRange(0, 30).Draw(t, "to")
		missing := s.Missing(from, to)
		for i := range 31 {
			inside := slices.ContainsFunc(missing, func(o Span) bool { return o[0] <= i && i < o[1] })
			if want := from <= i && i < to && !in[i]; inside != want {
				t.Fatalf("%v misses %v of [%d, %d): row %d", s, missing, from, to, i)
			}
		}
		for i, o := range s {
			if o[0] >= o[1] || i > 0 && s[i-1][1] >= o[0] {
				t.Fatalf("%v is not in order", s)
			}
		}
	})
}

// What a verdict looks like.
func TestRecordBytes(t *testing.T) {
	b, _, err := NewChain(kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 5}).Next(samples()[1])
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(old(), `"schema":1`, `"schema":2`, 1)
	if string(b) != want {
		t.Errorf("got\n%s\nwant\n%s", b, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, _, err := Chain{}.Next(samples()[2])
	if err != nil {
		t.Fatal(err)
	}
	swap := func(old, by string) []byte {
		b := bytes.Replace(good, []byte(old), []byte(by), 1)
		if bytes.Equal(b, good) {
			t.Fatalf("no %s in %s", old, good)
		}
		return b
	}
	for says, b := range map[string][]byte{
		"EOF":                             nil,
		"invalid character":               []byte("x"),
		"1 bytes follow the value":        append(bytes.Clone(good), '\n'),
		"schema 3, known 1 to 2":          swap(`"schema":2`, `"schema":3`),
		`unknown field "colour"`:          swap(`"epoch"`, `"colour":1,"epoch"`),
		`unknown field "text"`:            swap(`"prompt"`, `"text":"hello","prompt"`),
		"id: 30 digits, want 32":          swap(`"handoff":"ab`, `"handoff":"`),
		"hash: encoding/hex":              swap(`"prev":"00`, `"prev":"zz`),
		"length 8388609, limit 8388608":   make([]byte, MaxRecord+1),
		"cannot unmarshal":                swap(`"replies":4`, `"replies":-4`),
		"finished record 1 of : json: un": swap(`"output"`, `"outputs"`),
	} {
		if _, err := Decode(b); err == nil || !strings.HasPrefix(err.Error(), "journal: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if _, err := Decode([]byte(`{"schema":1,"kind":"verdict","facts":null}`)); err == nil || !strings.Contains(err.Error(), "no facts") {
		t.Errorf("null facts: %v", err)
	}
	if _, err := (Record{}).Encode(); err == nil {
		t.Error("a record without facts is encoded")
	}
	if _, err := (Record{Facts: Unknown{Kind: "x", Raw: []byte("{")}}).Encode(); err == nil {
		t.Error("a record with broken facts is encoded")
	}
}

// Facts have no field that could hold token ids, text of a prompt or bytes of a page.
func TestFactsHoldNoContent(t *testing.T) {
	allowed := map[reflect.Type]bool{reflect.TypeFor[Hash](): true, reflect.TypeFor[ID](): true, reflect.TypeFor[Pages](): true, reflect.TypeFor[Spans](): true}
	strings := map[string]bool{"Router": true, "Path": true, "Code": true, "Detail": true, "Finish": true, "Witness": true, "Check": true,
		"Decode": true, "Prefill": true, "Version": true, "Model": true, "LimitBy": true, "State": true, "Target": true, "What": true, "Result": true}
	for kind, read := range readers {
		v, err := read([]byte("{}"))
		if err != nil || v.kind() != kind {
			t.Fatalf("%s: %v, %v", kind, v, err)
		}
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			f := typ.Field(i)
			switch f.Type.Kind() {
			case reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64, reflect.Bool:
				continue
			case reflect.String:
				if strings[f.Name] {
					continue
				}
			}
			if !allowed[f.Type] {
				t.Errorf("%s.%s is %s", typ, f.Name, f.Type)
			}
		}
	}
}

// FuzzDecode: what is read and written again is read the same.
func FuzzDecode(f *testing.F) {
	for _, r := range samples() {
		b, _, err := Chain{Service: "decode-d1", Epoch: 1}.Next(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatalf("%q decodes to %+v, which does not encode: %v", b, r, err)
		}
		s, err := Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if third, err := s.Encode(); err != nil || !bytes.Equal(third, again) {
			t.Errorf("%q, then %q, then %q", b, again, third)
		}
	})
}
