package replay

import (
	"fmt"

	"quire/journal"
	"quire/kvtransfer"
)

// Level says how bad a finding is.
type Level string

// The levels, worst first.
const (
	Broken     Level = "broken"     // a rule does not hold, or the record was tampered with
	Incomplete Level = "incomplete" // something that should be in the record is not there
	Note       Level = "note"       // worth knowing
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Level    Level  `json:"level"`
	Rule     string `json:"rule"`
	Sequence uint64 `json:"sequence,omitempty"` // of the record that shows it
	Handoff  string `json:"handoff,omitempty"`  // with its attempt
	Text     string `json:"text"`
}

// String is one line.
func (f Finding) String() string {
	s := fmt.Sprintf("%-10s %s: %s", f.Level, f.Rule, f.Text)
	if f.Sequence > 0 {
		s += fmt.Sprintf("  #%d", f.Sequence)
	}
	if f.Handoff != "" {
		s += "  " + f.Handoff
	}
	return s
}

// maxFindings bounds what a broken record can make of this process's memory.
const maxFindings = 10000

func (p *Past) find(level Level, rule string, seq uint64, k kvtransfer.Key, format string, args ...any) {
	if len(p.Findings) >= maxFindings {
		return
	}
	f := Finding{Level: level, Rule: rule, Sequence: seq, Text: fmt.Sprintf(format, args...)}
	if k != (kvtransfer.Key{}) {
		f.Handoff = k.String()
	}
	p.Findings = append(p.Findings, f)
}

// complete looks at what the end of the record shows: tails that no signature covers, lives that broke off, records that were
// never written.
func (p *Past) complete() {
	if p.check == nil {
		p.find(Incomplete, "complete", 0, kvtransfer.Key{}, "the record is empty")
		return
	}
	if p.Partial {
		p.find(Note, "complete", 0, kvtransfer.Key{}, "the record begins with sequence %d: what was before is gone by retention", p.Extent.First)
	}
	if p.Extent.Last != 0 && p.Extent.Last != p.last.Sequence {
		p.find(Incomplete, "complete", p.last.Sequence, kvtransfer.Key{}, "the stream goes up to sequence %d, read up to %d", p.Extent.Last, p.last.Sequence)
	}
	newest := map[string]uint64{}
	for _, l := range p.Lives {
		newest[l.Service] = max(newest[l.Service], l.Epoch)
	}
	for _, l := range p.Lives {
		l.Chain, _ = p.check.Position(l.Service, l.Epoch)
		if l.Lost > 0 {
			p.find(Incomplete, "complete", l.Last.Sequence, kvtransfer.Key{}, "%s had to turn %d records away: the journal took none", l.Name(), l.Lost)
		}
		if l.Started == nil && !p.Partial {
			p.find(Incomplete, "complete", l.First.Sequence, kvtransfer.Key{}, "%s does not begin with its start", l.Name())
		}
		if n := l.Chain.Counter - l.Chain.Signed; p.keys != nil && n > 0 {
			p.find(Note, "signed", l.Last.Sequence, kvtransfer.Key{}, "the last %d records of %s are not covered by a signature yet", n, l.Name())
		}
		switch quiet := p.last.Time.Sub(l.Last.Time); {
		case l.Chain.Stopped:
		case l.Epoch < newest[l.Service]:
			p.find(Note, "tail", l.Last.Sequence, kvtransfer.Key{}, "%s ends after record %d without a last word: it died, or its tail is lost", l.Name(), l.Chain.Counter)
		case quiet > journal.SilentAfter:
			p.find(Incomplete, "tail", l.Last.Sequence, kvtransfer.Key{}, "%s has written nothing for %.0f s before the record ends, checkpoints come every %.0f s: it died, or its tail is lost",
				l.Name(), quiet.Seconds(), journal.CheckpointEvery.Seconds())
		}
	}
}
