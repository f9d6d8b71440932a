package console

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"quire/kvtransfer"
)

const (
	pastTimeout = 10 * time.Second       // of reading on: a longer journal is told as far as it was read, and further next time
	pastFresh   = 500 * time.Millisecond // the journal is not read on more often
	pastIdle    = 5 * time.Minute        // after which what was read is dropped
)

// pastKeeper holds the past while somebody uses the slider.
type pastKeeper struct {
	open func() Past

	mu   sync.Mutex
	past Past // nil while nobody does
	read time.Time
	drop *time.Timer
}

// use calls fn with the past, read up to now or nearly.
func (k *pastKeeper) use(ctx context.Context, fn func(Past) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.past == nil {
		k.past, k.read = k.open(), time.Time{}
		k.drop = time.AfterFunc(pastIdle, k.forget)
	}
	k.drop.Reset(pastIdle)
	if time.Since(k.read) > pastFresh {
		ctx, cancel := context.WithTimeout(ctx, pastTimeout)
		defer cancel()
		_, before := k.past.Range()
		err := k.past.Follow(ctx)
		_, after := k.past.Range()
		switch {
		case err == nil:
			k.read = time.Now()
		case after == before:
			k.past = nil // begun anew next time: the stream may be another one
			k.drop.Stop()
			return kvtransfer.Errorf(kvtransfer.BusFailed, "console: the journal cannot be read (may this router's NATS user?): %v", err)
		}
	}
	return fn(k.past)
}

func (k *pastKeeper) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.past = nil
}

// extent is how far back the slider goes.
type extent struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// moment is every pool after one message of the journal.
type moment struct {
	extent
	At    uint64 `json:"at"`
	Time  int64  `json:"time"` // Unix, milliseconds, of the server
	Pools []pool `json:"pools"`
}

// servePast tells the extent, or with ?at=N the pools after message N.
func (c *Console) servePast(w http.ResponseWriter, r *http.Request) {
	if c.cfg.Past == nil {
		fail(w, kvtransfer.Errorf(kvtransfer.NotFound, "console: this router cannot read the journal"))
		return
	}
	text, at := r.URL.Query().Get("at"), uint64(0)
	if text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n == 0 {
			e := kvtransfer.Errorf(kvtransfer.InvalidRequest, "console: at: a message of the journal is wanted, a number from 1")
			e.Param = "at"
			fail(w, e)
			return
		}
		at = n
	}
	var out any
	err := c.past.use(r.Context(), func(p Past) error {
		var e extent
		e.First, e.Last = p.Range()
		if at == 0 {
			out = e
			return nil
		}
		if at < e.First || at > e.Last {
			bad := kvtransfer.Errorf(kvtransfer.InvalidRequest, "console: at: %d, the journal can be told from %d to %d", at, e.First, e.Last)
			bad.Param = "at"
			return bad
		}
		when, pools, err := p.At(at)
		out = moment{e, at, when.UnixMilli(), c.pools(pools)}
		return err
	})
	if err != nil {
		fail(w, err)
		return
	}
	sendJSON(w, out)
}
