package sim

import (
	"fmt"

	"quire/bus"
	"quire/kvtransfer"
)

// journalWriter publishes a process's records in order, one at a time, until each is acknowledged, as journal.Writer does.
type journalWriter struct {
	p       *proc
	room    int
	queue   []*record
	pending int // records of put in the queue
	busy    bool
	closed  bool
	number  int
}

type record struct {
	text string
	id   string
	done func(error) // nil for put
	gone bool
}

func newJournal(p *proc, room int) *journalWriter { return &journalWriter{p: p, room: room} }

func (j *journalWriter) put(kind string, peer kvtransfer.Peer, k kvtransfer.Key) {
	if j.pending < j.room {
		j.pending++
		j.add(&record{text: fmt.Sprintf("%s %s", kind, k)}, peer)
	}
}

// append waits for the acknowledgement, at most for a while; done is called once.
func (j *journalWriter) append(kind string, peer kvtransfer.Peer, k kvtransfer.Key, wait Time, done func(error)) {
	r := &record{text: fmt.Sprintf("%s %s", kind, k)}
	r.done = func(err error) {
		if !r.gone {
			r.gone = true
			done(err)
		}
	}
	j.add(r, peer)
	j.p.after(wait, func() {
		if !r.gone {
			j.p.w.cov.mark("time-out: journal")
			r.done(fmt.Errorf("journal: append %s: no acknowledgement", kind))
		}
	})
}

func (j *journalWriter) add(r *record, peer kvtransfer.Peer) {
	j.number++
	r.id = fmt.Sprintf("%s.%s.%d.%d", peer.Role, peer.ID, peer.Epoch, j.number)
	j.queue = append(j.queue, r)
	j.pump(100*ms, peer)
}

func (j *journalWriter) pump(wait Time, peer kvtransfer.Peer) {
	if j.busy || j.closed || len(j.queue) == 0 {
		return
	}
	r := j.queue[0]
	if r.done != nil && r.gone { // given up before it was tried
		j.queue = j.queue[1:]
		j.pump(wait, peer)
		return
	}
	j.busy = true
	j.p.c.enqueue(bus.Enqueue{Subject: j.p.w.names.Journal("fact", string(peer.Role)+"-"+peer.ID), ID: r.id, Data: []byte(r.text),
		Expect: j.p.w.names.JournalStream()}, storeTimeout, func(_ uint64, err error) {
		if err != nil && !isDuplicate(err) {
			j.p.after(wait, func() {
				j.busy = false
				j.pump(min(2*wait, 800*ms), peer)
			})
			return
		}
		j.busy = false
		j.queue = j.queue[1:]
		if r.done != nil {
			r.done(nil)
		} else {
			j.pending--
		}
		j.pump(100*ms, peer)
	})
}

func (j *journalWriter) close() { j.closed = true }
