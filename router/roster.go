package router

import (
	"maps"
	"slices"

	"quire/kvtransfer"
)

// maxWorkers bounds how many ids of one role are remembered.
const maxWorkers = 1024

// worker is what this router knows of one prefill or decode.
type worker struct {
	hb     kvtransfer.Heartbeat
	heard  kvtransfer.Tick // when its last heartbeat came
	shut   bool            // it refused or did not answer: nothing goes there until its next heartbeat
	slots  share           // of a decode
	pages  share           // of a decode
	joined kvtransfer.Tick // first heartbeat of this epoch
}

// share splits what is taken of something into ours and others'. Heartbeats lag behind what this router did itself, so ours
// is counted here and only others' comes from them.
type share struct {
	ours   int // taken by attempts of this router
	others int // taken by others, as of the last heartbeat
	ended  []ended
}

// ended is something of ours that was given back a moment ago, which the next heartbeat may still count.
type ended struct {
	at kvtransfer.Tick
	n  int
}

// lag is for how long a heartbeat may count what has been given back.
const lag = kvtransfer.Second

func (s *share) take(n int) { s.ours += n }

func (s *share) give(now kvtransfer.Tick, n int) {
	s.ours -= n
	s.ended = append(s.ended, ended{now, n})
	s.prune(now)
}

func (s *share) prune(now kvtransfer.Tick) {
	for len(s.ended) > 0 && now-s.ended[0].at > lag {
		s.ended = s.ended[1:]
	}
}

// heard takes what a heartbeat counts as taken in all.
func (s *share) heard(now kvtransfer.Tick, taken int) {
	s.prune(now)
	for _, e := range s.ended {
		taken -= e.n
	}
	s.others = max(0, taken-s.ours)
}

func (s share) taken() int { return s.ours + s.others }

func (s share) clone() share {
	s.ended = slices.Clone(s.ended)
	return s
}

// roster is the live presence: who is there and what they can take.
type roster struct {
	prefills map[string]*worker // by id
	decodes  map[string]*worker // by id
	groups   map[string]*share  // prefill slots by Heartbeat.Pool
	silence  kvtransfer.Tick    // after which what a prefill said of its slots counts no more
}

func newRoster(silence kvtransfer.Tick) roster {
	return roster{silence: silence, prefills: map[string]*worker{}, decodes: map[string]*worker{}, groups: map[string]*share{}}
}

func (r *roster) of(role kvtransfer.Role) map[string]*worker {
	switch role {
	case kvtransfer.RolePrefill:
		return r.prefills
	case kvtransfer.RoleDecode:
		return r.decodes
	}
	return nil
}

// hear takes a heartbeat. It says whether a new life of a known id began.
func (r *roster) hear(now kvtransfer.Tick, hb kvtransfer.Heartbeat) (reborn bool) {
	workers := r.of(hb.Peer.Role)
	if workers == nil || !sane(hb) {
		return false
	}
	w := workers[hb.Peer.ID]
	switch {
	case w == nil && len(workers) >= maxWorkers:
		return false
	case w != nil && w.hb.Peer.Epoch > hb.Peer.Epoch:
		return false
	case w == nil || w.hb.Peer.Epoch < hb.Peer.Epoch:
		reborn = w != nil
		w = &worker{joined: now}
		workers[hb.Peer.ID] = w
	}
	w.hb, w.heard, w.shut = hb, now, false
	if hb.Peer.Role == kvtransfer.RoleDecode {
		w.slots.heard(now, hb.Slots-hb.SlotsFree)
		w.pages.heard(now, hb.Pages.Total-hb.Pages.Free)
		return reborn
	}
	r.group(hb.Pool).heard(now, r.busy(now, hb.Pool))
	return reborn
}

// sane refuses figures that cannot be.
func sane(hb kvtransfer.Heartbeat) bool {
	return hb.Peer.ID != "" && hb.Peer.ID != kvtransfer.AnyWorker && hb.Running >= 0 && hb.Slots >= 0 && hb.SlotsFree >= 0 && hb.SlotsFree <= hb.Slots && hb.PageSize > 0 &&
		hb.Pages.Free >= 0 && hb.Pages.Free <= hb.Pages.Total && hb.Slots <= 1<<20 && hb.Pages.Total <= 1<<40 && hb.PageSize <= 1<<20
}

func (r *roster) group(pool string) *share {
	g := r.groups[pool]
	if g == nil {
		g = &share{}
		r.groups[pool] = g
	}
	return g
}

// busy is how many prefill slots of a pool are taken by their own account. A worker that takes nothing more, or is silent, has no slot to
// be counted: neither free nor taken.
func (r *roster) busy(now kvtransfer.Tick, pool string) int {
	n := 0
	for _, w := range r.prefills {
		if w.hb.Pool == pool && !w.hb.Draining && now-w.heard <= r.silence {
			n += w.hb.Slots - w.hb.SlotsFree
		}
	}
	return n
}

// forget drops workers that have been silent for long, and groups that nobody is in.
func (r *roster) forget(now, after kvtransfer.Tick) {
	for _, workers := range []map[string]*worker{r.prefills, r.decodes} {
		for id, w := range workers {
			if now-w.heard > after && w.slots.ours == 0 {
				delete(workers, id)
			}
		}
	}
	for pool, g := range r.groups {
		g.prune(now)
		if g.ours == 0 && len(g.ended) == 0 && !r.hasPool(pool) {
			delete(r.groups, pool)
		}
	}
}

func (r *roster) hasPool(pool string) bool {
	for _, w := range r.prefills {
		if w.hb.Pool == pool {
			return true
		}
	}
	return false
}

// ids gives the keys in order: nothing here depends on the order of a map.
func ids(workers map[string]*worker) []string { return slices.Sorted(maps.Keys(workers)) }

// tokens is how many tokens of one request a worker can hold.
func (w *worker) tokens() int {
	n := w.hb.Pages.Total * w.hb.PageSize
	if w.hb.MaxModelLen > 0 {
		n = min(n, w.hb.MaxModelLen)
	}
	return n
}

// pagesFor is how many pages of a worker so many rows take.
func (w *worker) pagesFor(rows int) int { return (rows + w.hb.PageSize - 1) / w.hb.PageSize }

func (r roster) clone() roster {
	out := newRoster(r.silence)
	copyOf := func(to, from map[string]*worker) {
		for id, w := range from {
			c := *w
			c.slots, c.pages = w.slots.clone(), w.pages.clone()
			to[id] = &c
		}
	}
	copyOf(out.prefills, r.prefills)
	copyOf(out.decodes, r.decodes)
	for pool, g := range r.groups {
		c := g.clone()
		out.groups[pool] = &c
	}
	return out
}
