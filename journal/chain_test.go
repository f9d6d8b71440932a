package journal

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"testing"

	"quire/kvtransfer"
)

var peer = kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 5}

// keys is a ring of one role.
type keys struct{ decode ed25519.PrivateKey }

func newKeys() keys { return keys{ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))} }

func (k keys) Sign(msg []byte) []byte { return ed25519.Sign(k.decode, msg) }

func (k keys) Verify(role kvtransfer.Role, msg, sig []byte) bool {
	return role == kvtransfer.RoleDecode && ed25519.Verify(k.decode.Public().(ed25519.PublicKey), msg, sig)
}

// written gives n records of a chain as they lie in the stream.
func written(t *testing.T, p kvtransfer.Peer, n int) [][]byte {
	t.Helper()
	c := NewChain(p)
	var out [][]byte
	for i := range n {
		b, next, err := c.Next(Record{Key: kvtransfer.Key{Attempt: uint32(i)}, Facts: Finished{Output: i}})
		if err != nil {
			t.Fatal(err)
		}
		out, c = append(out, b), next
	}
	return out
}

// findings are the errors of a whole stream.
func findings(c *Checker, stream [][]byte) (out []error) {
	for _, b := range stream {
		if _, err := c.Check(b, nil); err != nil {
			out = append(out, err)
		}
	}
	return out
}

func TestWholeChainHasNoFindings(t *testing.T) {
	a, b := written(t, peer, 5), written(t, kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p-1", Epoch: 5}, 5)
	later := written(t, kvtransfer.Peer{Role: peer.Role, ID: peer.ID, Epoch: 6}, 2)
	stream := [][]byte{a[0], b[0], b[1], a[1], a[2], later[0], b[2], a[3], b[3], b[4], a[4], later[1]}
	var c Checker
	if got := findings(&c, stream); got != nil {
		t.Error(got)
	}
	if at, ok := c.Position("decode-d1", 5); !ok || at.Counter != 5 || at.Last != HashOf(a[4]) {
		t.Errorf("position %+v, %t", at, ok)
	}
	if _, ok := c.Position("decode-d1", 7); ok {
		t.Error("an epoch that wrote nothing has a position")
	}
}

// Each way in which a stream can be tampered with is found, and named once: what follows it is judged on its own.
func TestTamperingIsFound(t *testing.T) {
	edit := func(b []byte) []byte { return bytes.Replace(b, []byte(`"output":2`), []byte(`"output":3`), 1) }
	for name, c := range map[string]struct {
		change func(s [][]byte) [][]byte
		want   []error
	}{
		"an edit":                {func(s [][]byte) [][]byte { s[2] = edit(s[2]); return s }, []error{ErrEdited}},
		"a lost record":          {func(s [][]byte) [][]byte { return slices.Delete(s, 2, 3) }, []error{ErrGap}},
		"a lost run":             {func(s [][]byte) [][]byte { return slices.Delete(s, 1, 5) }, []error{ErrGap}},
		"a lost beginning":       {func(s [][]byte) [][]byte { return s[2:] }, []error{ErrGap}},
		"a swap":                 {func(s [][]byte) [][]byte { s[2], s[3] = s[3], s[2]; return s }, []error{ErrGap, ErrRepeated, nil}},
		"an old record again":    {func(s [][]byte) [][]byte { return append(s, s[1]) }, []error{ErrRepeated}},
		"the last record again":  {func(s [][]byte) [][]byte { return append(s, s[len(s)-1]) }, []error{ErrTwice}},
		"another record between": {func(s [][]byte) [][]byte { return slices.Insert(s, 3, edit(s[2])) }, []error{ErrRepeated}},
		"no record":              {func(s [][]byte) [][]byte { return slices.Insert(s, 3, []byte("{}")) }, []error{nil}},
	} {
		got := findings(&Checker{}, c.change(written(t, peer, 7)))
		for i, want := range c.want {
			if want == nil {
				continue
			}
			if i >= len(got) || !errors.Is(got[i], want) {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
		if len(got) == 0 || len(got) > len(c.want) {
			t.Errorf("%s: %d findings: %v", name, len(got), got)
		}
	}
}

// Where retention took the beginning, a chain begins with the first record that is left, and is checked from there.
func TestPartialStream(t *testing.T) {
	s := written(t, peer, 7)
	if got := findings(&Checker{Partial: true}, s[3:]); got != nil {
		t.Error(got)
	}
	if got := findings(&Checker{Partial: true}, append(s[3:5], s[6])); len(got) != 1 || !errors.Is(got[0], ErrGap) {
		t.Error(got)
	}
}

// With signatures no whole chain can be made up without the key, and what no signature covers is known.
func TestSignatures(t *testing.T) {
	k := newKeys()
	s := written(t, peer, 3)
	at := NewChain(peer)
	at.Counter, at.Last = 3, HashOf(s[2])
	check, _, err := at.Next(Record{Facts: Checkpoint{}})
	if err != nil {
		t.Fatal(err)
	}
	c := &Checker{Keys: k}
	for i, b := range append(s, check) {
		var sig []byte
		if i == 3 {
			sig = Sign(k, b)
		}
		if _, err := c.Check(b, sig); err != nil {
			t.Error(err)
		}
		if at, _ := c.Position("decode-d1", 5); at.Signed != uint64(i/3*4) || at.First != 1 {
			t.Errorf("after record %d: signed %d", i+1, at.Signed)
		}
	}
	edited := bytes.Replace(check, []byte("checkpoint"), []byte("stopped"), 1)
	other := written(t, kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1"}, 1)[0]
	for name, forged := range map[string]struct{ b, sig []byte }{
		"edited":       {edited, Sign(k, check)},
		"no signature": {check, nil},
		"bare":         {check, k.Sign(check)},
		"other role":   {other, Sign(k, other)},
		"old and bare": {[]byte(old()), nil},
	} {
		if _, err := (&Checker{Keys: k}).Check(forged.b, forged.sig); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A chain that said its end goes no further.
func TestNothingFollowsTheEnd(t *testing.T) {
	c := NewChain(peer)
	end, c, err := c.Next(Record{Facts: Stopped{}})
	if err != nil {
		t.Fatal(err)
	}
	more, _, err := c.Next(finished(1))
	if err != nil {
		t.Fatal(err)
	}
	var k Checker
	if got := findings(&k, [][]byte{end, more}); len(got) != 1 || !errors.Is(got[0], ErrRepeated) {
		t.Error(got)
	}
}

func ExampleChecker() {
	c := NewChain(peer)
	first, c, _ := c.Next(Record{Tenant: "acme", Facts: Verdict{Path: "received", OK: true, N: 3}})
	second, _, _ := c.Next(Record{Tenant: "acme", Facts: Finished{Finish: "stop"}})
	edited := bytes.Replace(first, []byte("acme"), []byte("other"), 1)

	var check Checker
	for _, b := range [][]byte{edited, second} {
		_, err := check.Check(b, nil)
		fmt.Println(errors.Is(err, ErrEdited))
	}
	// Output:
	// false
	// true
}
