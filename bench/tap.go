package bench

import (
	"context"
	"strings"
	"sync"
	"time"

	"quire/bus"
	"quire/kvtransfer/page"
	"quire/model"
)

// mark is a moment in one request's hand-off, in the order of their causes.
type mark int

const (
	sent       mark = iota // the client sends the request
	asked                  // decode gets the router's request for pages
	promised               // decode answers it
	pulled                 // prefill gets the job
	computing              // prefill's first step begins
	computed               // prefill's last step ends
	placed                 // decode has written the last frame into its pages
	recording              // decode publishes the verdict to the journal
	recorded               // the journal has acknowledged it
	witnessing             // part (a) of the witness begins
	witnessed              // and ends
	stepping               // decode's first step begins: part (b) of the witness, and the first token
	stepped                // and ends
	answered               // the client reads the first token
	marks      = int(answered) + 1
)

// effort is work that goes on beside something else: its time and how often.
type effort struct {
	time  time.Duration
	count int
}

// Kinds of effort.
const (
	reading    = iota // rows read out of prefill's pages
	publishing        // frames and manifest, from publish to the stream's acknowledgement
	writing           // rows written into decode's pages
	efforts
)

// timeline is what was seen of one request. Only one is under way at a time.
type timeline struct {
	mu     sync.Mutex
	at     [marks]time.Time
	did    [efforts]effort
	reply  string        // where the promise goes
	zeroed chan struct{} // one value for each pool that was zeroed
}

// begin forgets the last request.
func (t *timeline) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.did, t.reply = [marks]time.Time{}, [efforts]effort{}, ""
	for len(t.zeroed) > 0 {
		<-t.zeroed
	}
	t.at[sent] = time.Now()
}

// first notes when m came first, last when it came last.
func (t *timeline) first(m mark) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at[m].IsZero() {
		t.at[m] = now
	}
}

func (t *timeline) last(m mark) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at[m] = now
}

// ask notes the router's request for pages, and promise its answer: decode answers others too.
func (t *timeline) ask(reply string) {
	t.first(asked)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reply = reply
}

func (t *timeline) promise(subject string) {
	t.mu.Lock()
	mine := t.reply != "" && t.reply == subject
	t.mu.Unlock()
	if mine {
		t.first(promised)
	}
}

func (t *timeline) spent(kind int, since time.Time) {
	d := time.Since(since)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.did[kind].time += d
	t.did[kind].count++
}

// journal notes a record of decode's from its publish to its acknowledgement. The last one before the witness is the verdict.
func (t *timeline) journal(from time.Time) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at[witnessing].IsZero() {
		t.at[recording], t.at[recorded] = from, now
	}
}

// prefillTap watches a prefill worker's engine.
type prefillTap struct {
	model.Engine
	t *timeline
}

func (e prefillTap) Step(work []model.Work) ([]model.Result, error) {
	e.t.first(computing)
	defer e.t.last(computed)
	return e.Engine.Step(work)
}

func (e prefillTap) Read(v page.View, r model.Range, dst []byte) ([]byte, error) {
	defer e.t.spent(reading, time.Now())
	return e.Engine.Read(v, r, dst)
}

func (e prefillTap) Zero(pages []page.ID) error { return e.t.zero(e.Engine, pages) }

func (t *timeline) zero(e model.Engine, pages []page.ID) error {
	err := e.Zero(pages)
	select {
	case t.zeroed <- struct{}{}:
	default: // nobody waits for the zeroing of a start
	}
	return err
}

// decodeTap watches a decode worker's engine.
type decodeTap struct {
	model.Engine
	t *timeline
}

func (e decodeTap) Step(work []model.Work) ([]model.Result, error) {
	e.t.first(stepping)
	defer e.t.first(stepped)
	return e.Engine.Step(work)
}

func (e decodeTap) Write(g page.Grant, r model.Range, src []byte) error {
	defer e.t.last(placed)
	defer e.t.spent(writing, time.Now())
	return e.Engine.Write(g, r, src)
}

func (e decodeTap) WitnessRows(v page.View, tokens []int32, from int) (int, error) {
	e.t.first(witnessing)
	defer e.t.last(witnessed)
	return e.Engine.WitnessRows(v, tokens, from)
}

func (e decodeTap) Zero(pages []page.ID) error { return e.t.zero(e.Engine, pages) }

// busTap watches a worker's messages.
type busTap struct {
	bus.Bus
	t     *timeline
	names bus.Names
}

func (b busTap) Subscribe(subject, queue string, fn func(bus.Msg)) (bus.Sub, error) {
	if !strings.HasSuffix(subject, ".reserve") {
		return b.Bus.Subscribe(subject, queue, fn)
	}
	return b.Bus.Subscribe(subject, queue, func(m bus.Msg) {
		b.t.ask(m.Reply)
		fn(m)
	})
}

func (b busTap) Publish(subject string, header map[string][]string, data []byte) error {
	defer b.t.promise(subject)
	return b.Bus.Publish(subject, header, data)
}

func (b busTap) Consume(ctx context.Context, c bus.Consumer, fn func(bus.Delivery)) (bus.Sub, error) {
	if c.Stream != b.names.JobsStream() {
		return b.Bus.Consume(ctx, c, fn)
	}
	return b.Bus.Consume(ctx, c, func(d bus.Delivery) {
		b.t.first(pulled)
		fn(d)
	})
}

// decodeBusTap watches decode's journal too.
type decodeBusTap struct{ busTap }

func (b decodeBusTap) Enqueue(ctx context.Context, m bus.Enqueue) (uint64, error) {
	if m.Expect == b.names.JournalStream() {
		defer b.t.journal(time.Now())
	}
	return b.Bus.Enqueue(ctx, m)
}

// prefillBusTap watches prefill's frames too.
type prefillBusTap struct{ busTap }

func (b prefillBusTap) Enqueue(ctx context.Context, m bus.Enqueue) (uint64, error) {
	if strings.HasPrefix(m.Expect, b.names.KVPrefix()) {
		defer b.t.spent(publishing, time.Now())
	}
	return b.Bus.Enqueue(ctx, m)
}
