package matrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/keys"
	"quire/kvtransfer"
	"quire/router"
)

// fault is what happens while a message is held.
type fault string

const (
	cancel       fault = "cancel"
	clientGone   fault = "client gone"
	leaseOut     fault = "lease out"
	prefillCrash fault = "prefill crash"
	decodeCrash  fault = "decode crash"
	redelivery   fault = "redelivery"
	duplicate    fault = "duplicate"
	reorder      fault = "reorder"
	partition    fault = "partition"
	busRestart   fault = "bus restart"
)

var faults = []fault{cancel, clientGone, leaseOut, prefillCrash, decodeCrash, redelivery, duplicate, reorder, partition, busRestart}

// cell is one step that meets one fault.
type cell struct {
	step  step
	fault fault
}

func (c cell) String() string { return string(c.step) + " x " + string(c.fault) }

// cannot says why there is no such cell; "" when there is.
func (c cell) cannot() string {
	stored := slices.Contains([]step{claim, claimed, frame, manifest}, c.step)
	switch {
	case c.fault == redelivery && c.step == job:
		return "a job is delivered once"
	case c.fault == redelivery && !stored:
		return "core NATS delivers at most once"
	case c.fault == leaseOut && slices.Contains([]step{verdict, outcome, token, end, acked}, c.step):
		return "after the verdict the router's heartbeat is the lease"
	case c.fault == leaseOut && c.step == reserve:
		return "no lease runs yet"
	case (c.fault == cancel || c.fault == clientGone) && c.step == acked:
		return "the request is over"
	case c.fault == reorder && slices.Contains([]step{job, manifest, verdict, end, acked}, c.step):
		return "nothing follows until it has come"
	case c.fault == duplicate && c.step == verdict:
		return "an acknowledgement is no message of ours"
	}
	return ""
}

// counted says whether the late message of a step must be refused by something that counts: not an answer that nobody waits for,
// an acknowledgement by the journal, or an acknowledgement of an end.
func (c cell) counted() bool { return !slices.Contains([]step{reservation, verdict, acked}, c.step) }

// staysOpen says that the witness waits until the message has come again: the hand-off's end would purge it.
func (c cell) staysOpen() bool {
	return c.fault == redelivery && (c.step == frame || c.step == manifest)
}

// overtaken says that a resend can bring what is held, so that the request may end well before it is given up.
func (c cell) overtaken() bool { return c.step == outcome || c.step == token || c.step == end }

// play runs a cell in a world of its own. barrier is called where the bus restarts.
func (c cell) play(w *world, barrier func() error) error {
	ours := func(m *message) bool {
		return m.step == c.step && (m.key == w.net.first || w.net.first == kvtransfer.Key{})
	}
	hold := w.net.hold(rule{match: ours, copies: c.fault == duplicate, redeliver: c.fault == redelivery, once: c.fault == reorder})
	follow := make(chan struct{})
	if c.fault == reorder {
		w.net.followed(hold, follow)
	}
	if c.staysOpen() {
		w.frozen.Lock()
	}
	a, err := w.ask("acme")
	if err != nil {
		return err
	}
	late, err := w.caught(hold)
	if err != nil {
		if c.staysOpen() {
			w.frozen.Unlock()
		}
		return err
	}
	if c.staysOpen() {
		w.frozen.Unlock()
	}
	w.epoch = w.decode.Peer().Epoch
	if err := c.strike(w, a, late, follow, barrier); err != nil {
		return fmt.Errorf("fault: %w", err)
	}
	return c.reuse(w, a, hold, late)
}

// caught waits for a held message.
func (w *world) caught(r *rule) (*message, error) {
	select {
	case m := <-r.held:
		return m, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("no message came to be held within %s\n%s", patience, w.figures())
	}
}

// strike does what the fault is.
func (c cell) strike(w *world, a *request, late *message, follow chan struct{}, barrier func() error) error {
	switch c.fault {
	case cancel:
		err := w.router.Cancel(w.ctx, a.tenant, a.stream.ID())
		if e, _ := router.AsError(err); err != nil && e.Code == kvtransfer.NotFound && c.overtaken() {
			return nil
		}
		return err
	case clientGone:
		a.cancel()
	case leaseOut:
		return w.until("the lease's end", func() bool { return w.decode.Stats().Counters.Lost > 0 })
	case prefillCrash:
		return errors.Join(w.crashPrefill(0), w.crashPrefill(1))
	case decodeCrash:
		return w.crashDecode()
	case duplicate, redelivery:
		return w.answered(a)
	case reorder:
		select {
		case <-follow:
			late.pass()
		case <-time.After(patience):
			return fmt.Errorf("nothing followed\n%s", w.figures())
		}
		return w.answered(a)
	case partition:
		return c.cut(w, late)
	case busRestart:
		return barrier()
	}
	return nil
}

// cut takes the message's receiver off the network until the others have given it up.
func (c cell) cut(w *world, late *message) error {
	victim := late.tap
	if c.step == reservation {
		victim = w.front
	}
	victim.partition()
	defer victim.heal()
	if c.step == acked {
		return w.until("router's last try", func() bool { return w.router.Stats().Closing == 0 })
	}
	return w.until("the others to give up", func() bool {
		k := w.decode.Stats().Counters
		return k.Lost+k.Cancelled+k.Failed+k.Finished > 0 && victim != w.d.tap || w.router.Stats().Lost > 0
	})
}

// reuse gives the pages to the next request, lets the late message through while they are being filled, and looks at what came
// of it.
func (c cell) reuse(w *world, a *request, hold *rule, late *message) error {
	next := w.net.hold(rule{once: true, match: func(m *message) bool { return m.step == manifest && m.key != w.net.first }})
	b, err := w.ask("bank")
	if err != nil {
		return err
	}
	owner, err := w.caught(next)
	if err != nil {
		return fmt.Errorf("next owner: %w", err)
	}
	before := w.refused()
	w.net.drop(hold)
	if err := c.letThrough(w, late); err != nil {
		return fmt.Errorf("late message: %w", err)
	}
	if c.counted() {
		if err := w.until("a refusal to be counted", func() bool { return w.refused() > before }); err != nil {
			return err
		}
	}
	owner.pass()
	if err := w.answered(b); err != nil {
		return err
	}
	switch c.fault {
	case cancel, clientGone:
		if c.overtaken() && w.wait(a) == nil && a.err == nil {
			err = w.answered(a)
			break
		}
		err = w.ended(a, map[fault]kvtransfer.Code{cancel: kvtransfer.Cancelled, clientGone: kvtransfer.ClientGone}[c.fault])
	default:
		err = w.answered(a)
	}
	return errors.Join(err, w.clean())
}

// ended checks how a request that was given up ended: with that error, and no more than the answer's beginning.
func (w *world) ended(r *request, code kvtransfer.Code) error {
	if err := w.wait(r); err != nil {
		return err
	}
	e, _ := router.AsError(r.err)
	if want := solo(r.prompt); e.Code != code || len(r.got) > len(want) || !slices.Equal(r.got, want[:len(r.got)]) {
		return fmt.Errorf("%s got %v and %v, want %s", r.tenant, r.got, r.err, code)
	}
	return nil
}

// letThrough hands a held message on. Where the life that it was on the way to is over, the next one gets it.
func (c cell) letThrough(w *world, m *message) error {
	successor := m.tap.isCut() || m.tap == w.d.tap && w.decode.Peer().Epoch != w.epoch
	if !successor || c.step == reservation || c.step == verdict {
		m.pass()
		if c.step == job || c.step == reserve {
			return nil // answered when it has been worked on
		}
		select {
		case <-m.done:
			return nil
		case <-time.After(patience):
			return fmt.Errorf("not settled within %s\n%s", patience, w.figures())
		}
	}
	n, d := w.net.names, w.decode.Peer()
	ctx, stop := context.WithTimeout(w.ctx, patience)
	defer stop()
	bus0 := w.front.Bus
	switch c.step {
	case reserve:
		_, err := bus0.Request(ctx, n.Reserve(d.ID, d.Epoch), m.data)
		return err
	case acked:
		_, err := bus0.Request(ctx, n.Resend(d.ID, d.Epoch), m.data)
		return err
	case claim:
		return enqueue(ctx, bus0, n.Control("decode", d.ID, d.Epoch, m.key.String()), m.data)
	case frame, manifest:
		return enqueue(ctx, bus0, n.KV(d.ID, d.Epoch, m.key.String()), m.data)
	case claimed:
		p := w.prefills[0].Stats().Peer
		return enqueue(ctx, bus0, n.Control("prefill", p.ID, p.Epoch, m.key.String()), m.data)
	case job:
		return enqueue(ctx, bus0, n.Job("fake", w.d.engine.Info().Fingerprints.Pool(), m.key.String()), m.data)
	}
	return fmt.Errorf("no way for a late %s", c.step)
}

func enqueue(ctx context.Context, b bus.Bus, subject string, data []byte) error {
	_, err := b.Enqueue(ctx, bus.Enqueue{Subject: subject, Data: data})
	return err
}

// followed closes a channel when a later message of the attempt reaches the receiver of the one that a rule holds: another step,
// or the same again.
func (n *network) followed(r *rule, follow chan struct{}) {
	var once sync.Once
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watch = func(m *message) {
		n.mu.Lock()
		after := r.seen > 0 && m.key == n.first && !r.match(m) || r.seen > 0 && m.key == n.first && r.again(m)
		n.mu.Unlock()
		if after {
			once.Do(func() { close(follow) })
		}
	}
}

// again says that a message of the kind that a rule holds has come before.
func (r *rule) again(m *message) bool {
	if !r.match(m) {
		return false
	}
	r.repeats++
	return r.repeats > 1
}

// group is the worlds that share a server.
type group struct {
	cells   []cell
	restart bool
}

// TestLateMessages plays the matrix, many cells at a time: they wait more than they work.
func TestLateMessages(t *testing.T) {
	t.Parallel()
	ring, err := keys.Ensure(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	plain, restart := group{}, group{restart: true}
	only := os.Getenv("QUIRE_CELL")
	var none []string
	for _, s := range steps {
		for _, f := range faults {
			c := cell{s, f}
			switch why := c.cannot(); {
			case only != "" && !strings.Contains(c.String(), only):
			case why != "":
				none = append(none, c.String()+": "+why)
			case f == busRestart:
				restart.cells = append(restart.cells, c)
			default:
				plain.cells = append(plain.cells, c)
			}
		}
	}
	results := map[cell]error{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, g := range []group{plain, restart} {
		all.Go(func() {
			g.play(t, ring, func(c cell, err error) {
				mu.Lock()
				defer mu.Unlock()
				results[c] = err
			})
		})
	}
	all.Wait()
	for _, c := range append(plain.cells, restart.cells...) {
		t.Run(c.String(), func(t *testing.T) {
			if err := results[c]; err != nil {
				t.Error(err)
			}
		})
	}
	t.Logf("%d cells; none of these:\n%s", len(results), strings.Join(none, "\n"))
}

// atOnce is how many cells are played at a time.
const atOnce = 24

func (g group) play(t *testing.T, ring *keys.Ring, tell func(cell, error)) {
	if len(g.cells) == 0 {
		return
	}
	server, err := jet.Serve(jet.ServerOptions{Data: t.TempDir(), DontListen: true, MaxMemory: 1 << 40, MaxStore: 1 << 42})
	if err != nil {
		t.Error(err)
		return
	}
	defer server.Stop()
	slots := make(chan struct{}, atOnce)
	if g.restart {
		slots = make(chan struct{}, len(g.cells)) // they wait for each other
	}
	ready := make(chan struct{}, len(g.cells))
	again := make(chan struct{})
	var restartErr error
	if g.restart {
		go func() {
			for range g.cells {
				<-ready
			}
			server.Stop()
			restartErr = server.Restart()
			close(again)
		}()
	}
	var wg sync.WaitGroup
	for i, c := range g.cells {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			arrived := false
			arrive := func() {
				if !arrived {
					arrived = true
					ready <- struct{}{}
				}
			}
			defer arrive()
			w, err := newWorld(t.Context(), server, ring, fmt.Sprintf("m%d", i))
			if err == nil {
				err = c.play(w, func() error {
					arrive()
					<-again
					return restartErr
				})
			}
			tell(c, err)
			w.close()
		})
	}
	wg.Wait()
}
