package router

import (
	"encoding/binary"
	"fmt"
	"testing"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

const ms = kvtransfer.Millisecond

// counting is an entropy that never repeats and never surprises.
func counting() func(n int) []byte {
	var next uint64
	return func(n int) []byte {
		next++
		b := make([]byte, n)
		if n >= 8 {
			binary.BigEndian.PutUint64(b, next)
		}
		return b
	}
}

func testDigest(tenant string, tokens []int32) (sum [32]byte) {
	copy(sum[:], fmt.Sprintf("%s/%d", tenant, len(tokens)))
	return sum
}

var self = kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r", Epoch: 7}

func testLoop(p Policy) *Loop {
	return New(LoopConfig{Router: self, Policy: p, Entropy: counting(), Digest: testDigest})
}

// beatOf is the heartbeat of a worker with nothing to do.
func beatOf(role kvtransfer.Role, id string, epoch uint64, pages, slots int) kvtransfer.Heartbeat {
	var f kvtransfer.Fingerprints
	f.Model[0], f.Layout[0], f.Compute[0] = 1, 2, 3
	return kvtransfer.Heartbeat{
		Peer: kvtransfer.Peer{Role: role, ID: id, Epoch: epoch}, Model: "m", ModelSlug: "m", Pool: f.Pool(), Fingerprints: f,
		PageSize: 4, Pages: page.Counts{Total: pages, Free: pages}, Slots: slots, SlotsFree: slots,
	}
}

// world is a loop with one prefill and one decode there, and what it did.
type world struct {
	t       *testing.T
	l       *Loop
	effects []Effect
	lastRef uint64
	now     kvtransfer.Tick
}

func newWorld(t *testing.T, p Policy) *world {
	w := &world{t: t, l: testLoop(p)}
	w.do(BusChanged{Up: true, MaxPayload: 8 << 20})
	w.do(Heard{beatOf(kvtransfer.RolePrefill, "p1", 1, 64, 2)})
	w.do(Heard{beatOf(kvtransfer.RoleDecode, "d1", 1, 64, 4)})
	return w
}

// do handles an event, checks the invariants, and gives what was done.
func (w *world) do(ev Event) []Effect {
	w.t.Helper()
	w.effects = w.l.Handle(ev)
	if err := w.l.Verify(); err != nil {
		w.t.Fatalf("after %T: %v\n%s", ev, err, w.l.Dump())
	}
	return w.effects
}

// pass lets time pass, with heartbeats of everybody known.
func (w *world) pass(d kvtransfer.Tick) []Effect {
	w.t.Helper()
	var all []Effect
	for end := w.now + d; w.now < end; {
		w.now = min(end, w.now+50*ms)
		for _, workers := range []map[string]*worker{w.l.roster.prefills, w.l.roster.decodes} {
			for _, id := range ids(workers) {
				hb := workers[id].hb
				all = append(all, w.do(Heard{hb})...)
			}
		}
		all = append(all, w.do(Tick{Now: w.now})...)
	}
	w.effects = all
	return all
}

// silent lets time pass without heartbeats.
func (w *world) silent(d kvtransfer.Tick) []Effect {
	w.t.Helper()
	var all []Effect
	for end := w.now + d; w.now < end; {
		w.now = min(end, w.now+50*ms)
		all = append(all, w.do(Tick{Now: w.now})...)
	}
	w.effects = all
	return all
}

func (w *world) submit(tenant string, prompt, maxTokens int) uint64 {
	w.t.Helper()
	w.lastRef++
	w.do(Submitted{Ref: w.lastRef, Tenant: tenant, Tokens: make([]int32, prompt), MaxTokens: maxTokens})
	return w.lastRef
}

// find gives the one effect of a type, and fails if there is none.
func find1[T Effect](w *world) T {
	w.t.Helper()
	var found []T
	for _, fx := range w.effects {
		if e, ok := fx.(T); ok {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		var zero T
		w.t.Fatalf("want one %T, have %d among %s", zero, len(found), describe(w.effects))
		return zero
	}
	return found[0]
}

func has[T Effect](effects []Effect) bool {
	for _, fx := range effects {
		if _, ok := fx.(T); ok {
			return true
		}
	}
	return false
}

// promise is what an honest decode answers to a Reserve.
func promise(e SendReserve) Reserved {
	n := len(e.Reserve.Tokens)
	pages := make([]page.Slot, (n+e.Reserve.MaxTokens+3)/4)
	return Reserved{Key: e.Key, Envelope: []byte("signed"), Reservation: &kvtransfer.Reservation{
		Key: e.Key, Decode: e.To, Router: e.Reserve.Router, Tenant: e.Reserve.Tenant, N: n, MaxTokens: e.Reserve.MaxTokens,
		Digest: e.Reserve.Digest, Pages: pages, PageSize: 4, Fingerprints: e.Reserve.Fingerprints,
	}}
}

// place answers the Reserve that is out and stores its job.
func (w *world) place() kvtransfer.Key {
	w.t.Helper()
	e := find1[SendReserve](w)
	w.do(promise(e))
	find1[StoreJob](w)
	w.do(JobStored{Key: e.Key, Sequence: 11})
	return e.Key
}

func good() kvtransfer.ReplyBody {
	return kvtransfer.ReplyBody{Outcome: &kvtransfer.Outcome{OK: true}}
}

func bad(code kvtransfer.Code, detail string) kvtransfer.ReplyBody {
	return badBy("p1", code, detail)
}

// badBy refuses what a prefill has sent; "" when none has claimed.
func badBy(prefill string, code kvtransfer.Code, detail string) kvtransfer.ReplyBody {
	out := &kvtransfer.Outcome{Error: kvtransfer.Error{Code: code, Detail: detail}}
	if prefill != "" {
		out.Prefill = kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: prefill, Epoch: 1}
	}
	return kvtransfer.ReplyBody{Outcome: out}
}

func tokens(ids ...int32) kvtransfer.ReplyBody {
	var b kvtransfer.ReplyBody
	for _, id := range ids {
		b.Tokens = append(b.Tokens, kvtransfer.Token{ID: id, Text: []byte(fmt.Sprintf("<%d>", id))})
	}
	return b
}

func ending(output int, replies uint32) kvtransfer.ReplyBody {
	return kvtransfer.ReplyBody{End: &kvtransfer.End{Finish: kvtransfer.FinishLength, Output: output, Replies: replies}}
}

// describe prints effects, one line each.
func describe(effects []Effect) string {
	s := ""
	for _, fx := range effects {
		switch e := fx.(type) {
		case Accept:
			s += fmt.Sprintf("accept %d: prompt %d, max_tokens %d\n", e.Ref, e.Prompt, e.MaxTokens)
		case Begin:
			s += fmt.Sprintf("begin %d\n", e.Ref)
		case Give:
			s += fmt.Sprintf("give %d: %d tokens\n", e.Ref, len(e.Tokens))
		case Finish:
			s += fmt.Sprintf("finish %d: %s%s %s, prompt %d, output %d", e.Ref, e.End.Finish, e.End.Error.Code, e.End.Error.Detail, e.End.Prompt, e.End.Output)
			if e.RetryAfter > 0 {
				s += fmt.Sprintf(", retry after %d ms", e.RetryAfter/ms)
			}
			s += "\n"
		case SendReserve:
			s += fmt.Sprintf("reserve %s on %s: %d tokens, prompt %d, max_tokens %d, tenant %s\n", shortKey(e.Key), e.To, len(e.Reserve.Tokens), e.Reserve.Prompt, e.Reserve.MaxTokens, e.Reserve.Tenant)
		case StoreJob:
			s += fmt.Sprintf("job %s for %s: %d tokens\n", shortKey(e.Key), e.Target, len(e.Tokens))
		case DropJob:
			s += fmt.Sprintf("drop job %s: %d\n", shortKey(e.Key), e.Sequence)
		case AskResend:
			s += fmt.Sprintf("resend %s of %s: from %d, ack %t\n", shortKey(e.Key), e.To, e.From, e.Ack)
		case SendCancel:
			s += fmt.Sprintf("cancel %s on %s: %s\n", shortKey(e.Key), e.To, e.Error.Code)
		case Record:
			s += fmt.Sprintf("record %s: %s%s, attempts %d, prompt %d, output %d\n", shortKey(e.Finished.Key), e.Finished.Finish, e.Finished.Error.Code, e.Finished.Attempts, e.Finished.Prompt, e.Finished.Output)
		case RecordJob:
			p := e.Placed
			s += fmt.Sprintf("record %s: job %d on %s, limit %d by %s, queued %d ms\n", shortKey(p.Key), p.Sequence, p.Decode, p.Limit.Tokens, p.Limit.By, p.Queued/ms)
		case Forget:
			s += fmt.Sprintf("forget %s\n", shortKey(e.Key))
		default:
			s += fmt.Sprintf("%T %+v\n", fx, fx)
		}
	}
	return s
}
