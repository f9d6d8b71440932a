package kvtransfer

import "quire/kvtransfer/page"

// ManifestAnswer is what to do with a manifest.
type ManifestAnswer uint8

// Answers to a manifest.
const (
	ManifestTaken   ManifestAnswer = iota + 1 // kept: judge when Ready
	ManifestIgnore                            // the same one again
	ManifestRefuse                            // not from the worker that claimed, or too late: terminate, count
	ManifestCorrupt                           // it contradicts the reservation, or an earlier one: the attempt is over
)

// Manifest takes prefill's statement. One that contradicts the reservation is refused at once, by the check that the verdict
// names; one that comes before its frames waits for them until the lease ends.
func (m *Inbound) Manifest(from Peer, s Manifest, j Judge, now Tick) (ManifestAnswer, Verdict) {
	if !m.unfit(now).IsZero() {
		return ManifestRefuse, Verdict{}
	}
	if m.State != InFilling || from != m.Prefill {
		m.Ignored++
		return ManifestRefuse, Verdict{}
	}
	if m.Stated != nil {
		if *m.Stated == s {
			return ManifestIgnore, Verdict{}
		}
		v := Verdict{Check: "one manifest", Error: Errorf(HandoffContent, "manifest: a second one differs from the first")}
		m.End(v.Error)
		return ManifestCorrupt, v
	}
	m.Stated, m.Sender = &s, from
	v := GateEarly(m.evidence(j, now))
	if !v.OK {
		m.End(v.Error)
		return ManifestCorrupt, v
	}
	return ManifestTaken, v
}

// Judge is what decode adds, at the time of judging, to what the machine knows.
type Judge struct {
	Decode Peer         // this process
	Engine Fingerprints // of what would read the pages
	Pages  []page.Slot  // the owner's pages, as the ledger has them now
}

// Ready says that the manifest is there, as many frames as it names are in the pages, and no copy is under way: Gate now.
func (m *Inbound) Ready() bool {
	return m.State == InFilling && m.Stated != nil && m.copying == 0 && len(m.frames) >= m.Stated.Frames
}

// Gate gives the verdict over what was received. OK leads to Judging, where the journal must acknowledge it; anything else
// ends the attempt.
func (m *Inbound) Gate(j Judge, now Tick) Verdict {
	v := Gate(m.evidence(j, now))
	if v.OK {
		m.State = InJudging
	} else {
		m.End(v.Error)
	}
	return v
}

func (m *Inbound) evidence(j Judge, now Tick) Evidence {
	return Evidence{
		Now: now, Decode: j.Decode, Engine: j.Engine, Shape: m.Shape, Pages: j.Pages, Tokens: m.Tokens, Lease: m.Lease,
		Reservation: m.Reservation, Hash: m.Hash,
		Claim: m.Claimed, Prefill: m.Prefill, Manifest: *m.Stated, Sender: m.Sender, Frames: m.Frames(), Hidden: len(m.hidden),
	}
}

// Journaled says that the journal has acknowledged the verdict (zero err), or could not. It says whether the pages may be
// admitted now.
func (m *Inbound) Journaled(err Error) bool {
	if m.State != InJudging {
		return false
	}
	if !err.IsZero() {
		m.End(err)
		return false
	}
	m.State = InAdmitted
	return true
}
