package tape

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"quire/bus"
	"quire/kvtransfer"
)

var attempt = kvtransfer.Key{ID: kvtransfer.HandoffID{7}, Attempt: 2}

// parts are those of one whole attempt.
func parts() []Part {
	ps := []Part{
		{At: 5, Head: &Head{Model: "m", Reservation: []byte{1}, Claim: []byte{2}, Prefill: kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1", Epoch: 3},
			FrameKey: []byte{3}, Tokens: []int32{4, 5}, Prompt: 2, Sampling: kvtransfer.Sampling{Seed: 9}}},
		{At: 6, Frame: []byte("frame 0")},
		{At: 7, Frame: []byte("frame 1")},
		{At: 8, Manifest: &Manifest{From: kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1"}, Body: []byte{6}}},
		{At: 9, End: &End{Judged: true, OK: true, Finish: kvtransfer.FinishStop, Output: []int32{1}, Choices: []Choice{{Sum: 1 << 63, Bits: 7}}}},
	}
	for i := range ps {
		ps[i].Key, ps[i].Tenant, ps[i].Number = attempt, "acme", uint32(i)
	}
	return ps
}

func TestPartSealAndOpen(t *testing.T) {
	k := NewKey()
	for i, want := range parts() {
		b, err := want.Seal(k)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("frame")) {
			t.Error("the part can be read")
		}
		if got, err := OpenPart(k, "acme", attempt, want.Number, b); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("part %d: %v %s", i, err, cmp.Diff(want, got))
		}
		changed, newer := bytes.Clone(b), bytes.Clone(b)
		changed[len(b)-1] ^= 1
		newer[0]++
		for name, open := range map[string]func() (Part, error){
			"other key":    func() (Part, error) { return OpenPart(NewKey(), "acme", attempt, want.Number, b) },
			"other tenant": func() (Part, error) { return OpenPart(k, "umbra", attempt, want.Number, b) },
			"other attempt": func() (Part, error) {
				return OpenPart(k, "acme", kvtransfer.Key{ID: attempt.ID, Attempt: 1}, want.Number, b)
			},
			"other number": func() (Part, error) { return OpenPart(k, "acme", attempt, want.Number+1, b) },
			"changed":      func() (Part, error) { return OpenPart(k, "acme", attempt, want.Number, changed) },
			"newer":        func() (Part, error) { return OpenPart(k, "acme", attempt, want.Number, newer) },
			"empty":        func() (Part, error) { return OpenPart(k, "acme", attempt, want.Number, nil) },
			"a take":       func() (Part, error) { b, _ := take(7).Seal(k); return OpenPart(k, "acme", attempt, want.Number, b) },
		} {
			if p, err := open(); err == nil {
				t.Errorf("part %d: %s opens: %+v", i, name, p)
			}
		}
	}
	if _, err := (Part{Key: attempt}).Seal(k); err == nil {
		t.Error("a part without anything is sealed")
	}
	if _, err := (Part{Frame: make([]byte, MaxPart+1)}).Seal(k); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("oversize: %v", err)
	}
}

// messages are sealed parts in memory.
type messages []struct {
	subject string
	data    []byte
}

func (m messages) Tape(_ context.Context, pattern string, fn func(string, []byte) error) error {
	for _, x := range m {
		if bus.Matches(pattern, x.subject) {
			if err := fn(x.subject, x.data); err != nil {
				return err
			}
		}
	}
	return nil
}

// An attempt is read whole or not at all: what is missing is named.
func TestAttemptOf(t *testing.T) {
	k, names := NewKey(), bus.Names{}
	all := parts()
	with := func(ps ...Part) (m messages) {
		for _, p := range ps {
			b, err := p.Seal(k)
			if err != nil {
				t.Fatal(err)
			}
			m = append(m, struct {
				subject string
				data    []byte
			}{names.TapePart(p.Tenant, p.Key.String(), p.Number), b})
		}
		return m
	}
	read := func(m messages) (Attempt, error) { return AttemptOf(t.Context(), m, names, k, "acme", attempt) }
	a, err := read(with(all[0], all[2], all[1], all[1], all[3], all[4])) // out of order, and one twice
	if err != nil || cmp.Diff(a.Head, *all[0].Head) != "" || len(a.Parts) != 3 || cmp.Diff(a.Parts, all[1:4]) != "" || a.End == nil || a.Bytes() != 14 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := read(with(all[:4]...)); err != nil || a.End != nil {
		t.Errorf("without an end: %v", err)
	}
	for name, m := range map[string]messages{"nothing": nil, "no head": with(all[1:]...), "a frame less": with(all[0], all[2], all[3], all[4])} {
		if _, err := read(m); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	late := all[3]
	late.Number = 5
	if _, err := read(with(append(parts(), late)...)); err == nil || !strings.Contains(err.Error(), "out of place") {
		t.Errorf("something behind the end: %v", err)
	}
}
