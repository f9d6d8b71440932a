package sim

import (
	"slices"

	"quire/kvtransfer"
	"quire/prefill"
)

// rogue is a process that holds the keys of its role and lies. The zero chance of a nil one is honesty: every method gives
// back what it got. Whatever it does, no client may get a wrong token.
type rogue struct {
	w    *World
	kind string
	last []byte // rows of the frame before
}

// Lies of a prefill and of a router. Each is one that some check exists for.
var (
	prefillLies = []string{
		"manifest: one token", "manifest: N", "manifest: C", "manifest: sent", "manifest: pages", "manifest: frames", "manifest: no frames",
		"manifest: tenant", "manifest: digest", "manifest: claim", "manifest: reservation", "manifest: attempt", "manifest: hand-off",
		"frame: withheld", "frame: rows beyond", "frame: layers beyond", "frame: rows again", "frame: other bytes", "frame: bytes of another frame",
		"frame: two under one index", "frame: index beyond", "frame: short", "frame: hidden vector twice", "frame: hidden vector changed",
		"frame: no hidden vector", "tokens: another prompt", "tokens: one other", "claim: other reservation", "frame: garbage", "frame: another's claim",
	}
	newerLies  = []string{"frame: a changed copy beside it", "manifest: another one after it"}
	routerLies = []string{
		"job: short", "job: other tokens", "job: no tokens", "job: another reservation", "reserve: digest", "reserve: no tenant", "reserve: max_tokens 0",
		"reserve: prompt beyond", "reserve: fingerprint", "reserve: too long", "reserve: late", "reserve: for another router", "reserve: attempt 0",
	}
)

func (w *World) roguePrefill(n *node) *rogue { return w.drawRogue(n, prefillLies) }
func (w *World) rogueRouter(n *node) *rogue  { return w.drawRogue(n, routerLies) }

func (w *World) drawRogue(n *node, lies []string) *rogue {
	if w.healed || !w.dice.chance(w.plan.Rogue) {
		return nil
	}
	n.lies = true
	r := &rogue{w: w, kind: lies[w.dice.IntN(len(lies))]}
	if n.role == kvtransfer.RolePrefill && w.dice.chance(w.plan.Rogue2) {
		r.kind = pick(w.dice, newerLies...)
	}
	if w.plan.Lie != "" {
		r.kind = w.plan.Lie
	}
	return r
}

// lies says whether this is the lie, and it is told now.
func (r *rogue) lies(kind string) bool {
	if r == nil || r.w.healed || r.kind != kind || !r.w.dice.chance(0.5) {
		return false
	}
	r.w.cov.mark("lie: " + kind)
	return true
}

func (r *rogue) claim(m kvtransfer.Claim) *kvtransfer.Claim {
	if r.lies("claim: other reservation") {
		m.Reservation[3]++
	}
	return &m
}

// manifest changes one thing of a manifest.
func (r *rogue) manifest(m kvtransfer.Manifest) kvtransfer.Manifest {
	switch {
	case r.lies("manifest: one token"):
		m.N, m.C, m.Sent, m.Pages = 1, 0, 1, 1
	case r.lies("manifest: N"):
		m.N, m.Sent = m.N+1, m.Sent+1
	case r.lies("manifest: C"):
		m.C, m.Sent = m.C+1, m.Sent-1
	case r.lies("manifest: sent"):
		m.Sent++
	case r.lies("manifest: pages"):
		m.Pages++
	case r.lies("manifest: frames"):
		m.Frames = max(1, m.Frames-1)
	case r.lies("manifest: no frames"):
		m.Frames = 0
	case r.lies("manifest: tenant"):
		m.Tenant = "other"
	case r.lies("manifest: digest"):
		m.Digest[5]++
	case r.lies("manifest: claim"):
		m.Claim[1]++
	case r.lies("manifest: reservation"):
		m.Reservation[1]++
	case r.lies("manifest: attempt"):
		m.Key.Attempt++
	case r.lies("manifest: hand-off"):
		m.Key.ID[2]++
	}
	return m
}

// second is another manifest to send after the first one; false when there is none.
func (r *rogue) second(m kvtransfer.Manifest) (kvtransfer.Manifest, bool) {
	if !r.lies("manifest: another one after it") {
		return m, false
	}
	m.Digest[7]++
	return m, true
}

// beside changes a copy of a sealed frame; nil when it does not lie.
func (r *rogue) beside(data []byte) []byte {
	if !r.lies("frame: a changed copy beside it") {
		return nil
	}
	data = slices.Clone(data)
	data[len(data)-1]++ // of the tag: it does not open
	return data
}

func (r *rogue) withholds() bool { return r.lies("frame: withheld") }

// tokens changes what is computed.
func (r *rogue) tokens(t []int32) []int32 {
	switch {
	case r.lies("tokens: another prompt"):
		t = slices.Clone(t)
		for i := range t {
			t[i] = int32(2 + (int(t[i])+7)%(r.w.plan.engine.Vocab-2))
		}
	case r.lies("tokens: one other"):
		t = slices.Clone(t)
		t[0] = int32(2 + (int(t[0])+1)%(r.w.plan.engine.Vocab-2))
	}
	return t
}

// frame changes a frame before it is sealed; extra are more frames to store.
func (r *rogue) frame(fx prefill.SealAndSend, plain []byte) (prefill.SealAndSend, []byte, [][]byte) {
	if r == nil {
		return fx, plain, nil
	}
	plain = slices.Clone(plain)
	h := &fx.Header
	var extra [][]byte
	before := r.last
	r.last = slices.Clone(plain)
	switch {
	case r.lies("frame: rows beyond"):
		h.RowFrom, h.RowTo = h.RowFrom+500, h.RowTo+500
	case r.lies("frame: layers beyond"):
		h.LayerFrom, h.LayerTo = h.LayerFrom+1, h.LayerTo+1
	case r.lies("frame: rows again") && h.RowFrom > 0:
		h.RowFrom, h.RowTo = h.RowFrom-1, h.RowTo-1
	case r.lies("frame: other bytes"):
		plain[r.w.dice.IntN(len(plain))] ^= 0x40
	case len(before) == len(plain) && r.lies("frame: bytes of another frame"):
		copy(plain, before)
	case r.lies("frame: two under one index"):
		other := slices.Clone(plain)
		other[0]++
		data, _ := prefill.SealFrame(fx, other)
		extra = append(extra, data)
	case r.lies("frame: index beyond"):
		h.Index += 1 << 16
	case r.lies("frame: short"):
		plain = plain[:len(plain)-1]
	case h.Hidden == 0 && r.lies("frame: hidden vector twice"):
		h.Hidden, fx.Hidden = 4, []float32{1, 2, 3, 4}
	case h.Hidden > 0 && r.lies("frame: hidden vector changed"):
		fx.Hidden = slices.Clone(fx.Hidden)
		fx.Hidden[0]++
	case h.Hidden > 0 && r.lies("frame: no hidden vector"):
		h.Hidden, fx.Hidden = 0, nil
	case r.lies("frame: garbage"):
		extra = append(extra, r.w.dice.bytes(60))
	case r.lies("frame: another's claim"):
		other := fx
		other.Header.Claim[0]++
		other.Key[0]++
		data, _ := prefill.SealFrame(other, plain)
		extra = append(extra, data)
	}
	return fx, plain, extra
}

// job changes a router's job.
func (r *rogue) job(m kvtransfer.Job) kvtransfer.Job {
	switch {
	case r.lies("job: short"):
		m.Tokens = m.Tokens[:1]
	case r.lies("job: other tokens"):
		m.Tokens = slices.Clone(m.Tokens)
		m.Tokens[0] = int32(2 + (int(m.Tokens[0])+1)%(r.w.plan.engine.Vocab-2))
	case r.lies("job: no tokens"):
		m.Tokens = nil
	case r.lies("job: another reservation"):
		m.Reservation = slices.Clone(m.Reservation)
		m.Reservation[len(m.Reservation)-1]++
	}
	return m
}

// reserve changes a router's question.
func (r *rogue) reserve(m kvtransfer.Reserve) kvtransfer.Reserve {
	switch {
	case r.lies("reserve: digest"):
		m.Digest[1]++
	case r.lies("reserve: no tenant"):
		m.Tenant = ""
	case r.lies("reserve: max_tokens 0"):
		m.MaxTokens = 0
	case r.lies("reserve: prompt beyond"):
		m.Prompt = len(m.Tokens) + 1
	case r.lies("reserve: fingerprint"):
		m.Fingerprints.Model[0]++
	case r.lies("reserve: too long"):
		m.MaxTokens = 1 << 20
	case r.lies("reserve: late"):
		m.DeadlineLeft = 0
	case r.lies("reserve: for another router"):
		m.Router.Epoch++
	case r.lies("reserve: attempt 0"):
		m.Key.Attempt = 0
	}
	return m
}
