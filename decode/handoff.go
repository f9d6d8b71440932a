package decode

import (
	"slices"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
)

// handoff is one attempt in the loop's table: the protocol's machine, and what decode keeps beside it.
type handoff struct {
	in   *kvtransfer.Inbound
	body []byte // the reservation as encoded

	tokens   []int32 // prompt and output so far; only appended to
	prompt   int     // P: how many of tokens are the prompt of the first attempt
	sampling kvtransfer.Sampling
	router   kvtransfer.Peer

	pair     seal.KeyPair // one per reservation
	frameKey [32]byte     // of the bound claim
	replyKey [32]byte

	rows     int // rows in the pages. Invariant: rows == N + output - 1 once the first token is out.
	output   int // tokens made by this attempt
	finish   kvtransfer.Finish
	held     []byte // text that the end brings
	stop     string // the stop string or token that matched
	stepped  uint64 // number of its last step
	failures int    // steps or witnesses that failed in a row

	// For the journal.
	repeated, refused          uint64          // frames that came once more; messages turned away
	firstAt, statedAt, ownedAt kvtransfer.Tick // first frame copied, manifest taken, pages owned; 0 = not yet
	owned, unjournaled         bool            // kernels may read; the journal has not acknowledged the verdict

	seq     uint64   // attempts are numbered as they come
	counted standing // what the table counts of it

	// For the tape.
	taped   uint32 // parts handed on
	judged  bool   // verdict is set
	verdict kvtransfer.Verdict

	replies   []kvtransfer.ReplyBody // by number; kept until the end is acknowledged
	told      bool                   // reply 0 has been made
	keepUntil kvtransfer.Tick        // when it is over: forget it then
}

func (h *handoff) key() kvtransfer.Key { return h.in.Key() }

func (h *handoff) clone() *handoff {
	c := *h
	c.in = h.in.Clone()
	c.tokens = slices.Clone(h.tokens)
	c.replies = slices.Clone(h.replies)
	return &c
}

// Clone copies the loop: the copy shares nothing that is ever written.
func (l *Loop) Clone() *Loop {
	c := *l
	c.ledger = l.ledger.Clone()
	c.step = slices.Clone(l.step)
	c.releases = slices.Clone(l.releases)
	c.handoffs = make(map[kvtransfer.Key]*handoff, len(l.handoffs))
	for k, h := range l.handoffs {
		c.handoffs[k] = h.clone()
	}
	c.table = l.settled().clone(c.handoffs)
	c.routers = make(map[kvtransfer.Peer]kvtransfer.Tick, len(l.routers))
	for k, t := range l.routers {
		c.routers[k] = t
	}
	c.out = nil
	return &c
}

// end ends an attempt with an error, unless it is over: its pages leave, the router hears it, prefill too.
func (l *Loop) end(h *handoff, err kvtransfer.Error) {
	if h.in.State.Over() {
		return
	}
	h.in.End(err)
	l.ended(h)
}

// ended does what is due once an attempt's machine is over, once per attempt: pages, replies, prefill, journal, leftovers.
// Pages that a copy, a step or a witness still holds leave when it reports.
func (l *Loop) ended(h *handoff) {
	k, o := h.key(), h.key().Owner()
	if h.in.State == kvtransfer.InQuarantined {
		if err := l.ledger.Quarantine(o); err != nil {
			l.bug("quarantine: %v", err)
			return
		}
	}
	if err := l.ledger.Release(o); err != nil {
		l.bug("release: %v", err)
		return
	}
	h.keepUntil = max(h.in.Lease.Deadline, l.now+l.cfg.Lease)
	l.countEnd(h)
	l.tellPrefill(h)
	l.tellEnd(h)
	l.do(Journal{Fact: l.fact(h, FactFinished)})
	l.tapeEnd(h)
	l.do(Forget{Key: k})
	if h.in.Prefill != (kvtransfer.Peer{}) {
		l.do(PurgeKV{Key: k})
	}
	h.tokens, h.body = nil, nil
}

// tellPrefill ends prefill's leg of an attempt that it may still be working on.
func (l *Loop) tellPrefill(h *handoff) {
	in := h.in
	if in.Prefill == (kvtransfer.Peer{}) || in.Err.IsZero() {
		return
	}
	switch in.Err.Code {
	case kvtransfer.Cancelled, kvtransfer.ClientGone, kvtransfer.DeadlineExceeded:
		l.do(Control{To: in.Prefill, Key: h.key(), Kind: kvtransfer.KindCancel, M: kvtransfer.Cancel{Key: h.key(), Error: in.Err}})
	default:
		l.gone(in.Prefill, h.key(), in.Claimed.Claim, in.Err)
	}
}

func (l *Loop) gone(to kvtransfer.Peer, k kvtransfer.Key, c kvtransfer.ClaimID, err kvtransfer.Error) {
	l.do(Control{To: to, Key: k, Kind: kvtransfer.KindGone, M: kvtransfer.Gone{Key: k, Claim: c, Error: err}})
}

func (l *Loop) countEnd(h *handoff) {
	err := h.in.Err
	switch {
	case err.IsZero():
		l.count.Finished++
	case err.Code == kvtransfer.HandoffWitness:
		l.count.WitnessFailed++
	case err.Class() == kvtransfer.ClassCorrupt:
		l.count.GateRefused++
	case err.Code == kvtransfer.Cancelled || err.Code == kvtransfer.ClientGone:
		l.count.Cancelled++
	case err.Class() == kvtransfer.ClassLost:
		l.count.Lost++
	default:
		l.count.Failed++
	}
}
