package page

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata anew")

var alice, bob = Owner{Handoff: [16]byte{0xa}, Attempt: 1}, Owner{Handoff: [16]byte{0xb}, Attempt: 2}

// stage is one situation of one owner, with a grant and a view that it has or once had.
type stage struct {
	name string
	make func(s *setup)
}

type setup struct {
	l     *Ledger
	grant Grant
	view  View
	ids   []ID
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func do(err error) {
	if err != nil {
		panic(err)
	}
}

func (s *setup) reserve() { must(s.l.Reserve(alice, 10)) }
func (s *setup) fill()    { s.reserve(); do(s.l.Fill(alice)) }
func (s *setup) write() {
	s.fill()
	s.grant = must(s.l.Grant(alice, 0, 6))
}
func (s *setup) admit() {
	s.write()
	do(s.l.Settle(s.grant))
	s.view = must(s.l.Admit(alice, 6))
}
func (s *setup) step() { s.admit(); s.grant = must(s.l.Grant(alice, 6, 7)) }

var stages = []stage{
	{"unknown", func(*setup) {}},
	{"reserved", (*setup).reserve},
	{"filling", (*setup).fill},
	{"filling, write open", (*setup).write},
	{"filling, write open, released", func(s *setup) { s.write(); do(s.l.Release(alice)) }},
	{"owned, received", (*setup).admit},
	{"owned, computed here", func(s *setup) { s.reserve(); s.view = must(s.l.Own(alice)) }},
	{"owned, write open", (*setup).step},
	{"owned, write settled", func(s *setup) { s.step(); do(s.l.Settle(s.grant)) }},
	{"owned, reader out", func(s *setup) { s.admit(); do(s.l.Hold(alice)) }},
	{"owned, reader out, released", func(s *setup) { s.admit(); do(s.l.Hold(alice)); do(s.l.Release(alice)) }},
	{"quarantined", func(s *setup) { s.admit(); do(s.l.Quarantine(alice)) }},
	{"quarantined, write open", func(s *setup) { s.write(); do(s.l.Quarantine(alice)) }},
	{"zeroing", func(s *setup) { s.admit(); do(s.l.Release(alice)) }},
	{"zeroing, given out", func(s *setup) { s.admit(); do(s.l.Release(alice)); s.ids = s.l.TakeZeroing() }},
	{"gone", func(s *setup) {
		s.admit()
		do(s.l.Release(alice))
		s.ids = s.l.TakeZeroing()
		do(s.l.Zeroed(s.ids))
	}},
	{"gone, pages bob's", func(s *setup) {
		s.admit()
		do(s.l.Release(alice))
		s.ids = s.l.TakeZeroing()
		do(s.l.Zeroed(s.ids))
		must(s.l.Reserve(bob, 12))
	}},
}

var operations = []struct {
	name string
	run  func(s *setup) error
}{
	{"reserve", func(s *setup) error { _, err := s.l.Reserve(alice, 10); return err }},
	{"fill", func(s *setup) error { return s.l.Fill(alice) }},
	{"grant", func(s *setup) error { _, err := s.l.Grant(alice, 6, 8); return err }},
	{"check", func(s *setup) error { return s.l.Check(s.grant) }},
	{"settle", func(s *setup) error { return s.l.Settle(s.grant) }},
	{"admit", func(s *setup) error { _, err := s.l.Admit(alice, 6); return err }},
	{"own", func(s *setup) error { _, err := s.l.Own(alice); return err }},
	{"grow", func(s *setup) error { _, err := s.l.Grow(alice, 7); return err }},
	{"view", func(s *setup) error { _, err := s.l.View(alice); return err }},
	{"checkview", func(s *setup) error { return s.l.CheckView(s.view) }},
	{"hold", func(s *setup) error { return s.l.Hold(alice) }},
	{"unhold", func(s *setup) error { return s.l.Unhold(alice) }},
	{"quarantine", func(s *setup) error { return s.l.Quarantine(alice) }},
	{"release", func(s *setup) error { return s.l.Release(alice) }},
	{"zeroed", func(s *setup) error { return s.l.Zeroed(s.ids) }},
}

// outcome is what an operation did to alice: her state and holds afterwards, or the reason of the refusal.
func outcome(s *setup, err error) string {
	for reason, short := range map[error]string{ErrExhausted: "exhausted", ErrExists: "exists", ErrUnknown: "unknown", ErrState: "state",
		ErrBounds: "bounds", ErrHeld: "held", ErrStale: "stale"} {
		if errors.Is(err, reason) {
			return "!" + short
		}
	}
	if err != nil {
		return err.Error()
	}
	st, rows, holds, ok := s.l.State(alice)
	if !ok {
		return "gone"
	}
	return fmt.Sprintf("%s/%d/%d", st, rows, holds)
}

// TestEveryOperationInEveryState pins what each operation does in each situation (state/readable rows/open holds, or the
// refusal), that a refusal changes nothing, and that the invariants hold afterwards.
func TestEveryOperationInEveryState(t *testing.T) {
	var got strings.Builder
	for _, st := range stages {
		fmt.Fprintf(&got, "%s:\n", st.name)
		for _, op := range operations {
			s := &setup{l: NewLedger(7, 4, 4)}
			st.make(s)
			before := s.l.Dump()
			err := op.run(s)
			if err != nil && s.l.Dump() != before {
				t.Errorf("%s: %s refused (%v) and changed\n%sto\n%s", st.name, op.name, err, before, s.l.Dump())
			}
			if err != nil && !strings.HasPrefix(err.Error(), "page: ") {
				t.Errorf("%s: %s: error %q", st.name, op.name, err)
			}
			if bad := s.l.Verify(); bad != nil {
				t.Errorf("%s: %s: %v", st.name, op.name, bad)
			}
			fmt.Fprintf(&got, "  %-10s %s\n", op.name, outcome(s, err))
		}
	}
	const file = "testdata/operations.txt"
	if *update {
		do(os.WriteFile(file, []byte(got.String()), 0o644))
	}
	if diff := cmp.Diff(string(must(os.ReadFile(file))), got.String()); diff != "" {
		t.Errorf("%s is no longer true (-update writes it anew):\n%s", file, diff)
	}
}
