package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"quire/kvtransfer"
)

// TestPromiseChecks: each field of a reservation that is not what was asked for costs the attempt, and no job leaves.
func TestPromiseChecks(t *testing.T) {
	for what, spoil := range map[string]func(*kvtransfer.Reservation){
		"hand-off":     func(r *kvtransfer.Reservation) { r.Key.ID[0]++ },
		"attempt":      func(r *kvtransfer.Reservation) { r.Key.Attempt++ },
		"decode":       func(r *kvtransfer.Reservation) { r.Decode.ID = "d2" },
		"epoch":        func(r *kvtransfer.Reservation) { r.Decode.Epoch++ },
		"router":       func(r *kvtransfer.Reservation) { r.Router.Epoch++ },
		"tenant":       func(r *kvtransfer.Reservation) { r.Tenant = "bank" },
		"digest":       func(r *kvtransfer.Reservation) { r.Digest[0]++ },
		"fingerprints": func(r *kvtransfer.Reservation) { r.Fingerprints.Compute[0]++ },
		"prompt":       func(r *kvtransfer.Reservation) { r.N-- },
		"max_tokens":   func(r *kvtransfer.Reservation) { r.MaxTokens-- },
		"cached":       func(r *kvtransfer.Reservation) { r.C = 1 },
		"page size":    func(r *kvtransfer.Reservation) { r.PageSize = 0 },
		"pages":        func(r *kvtransfer.Reservation) { r.Pages = r.Pages[:len(r.Pages)-1] },
	} {
		w := newWorld(t, Policy{})
		w.submit("acme", 6, 2)
		e := find1[SendReserve](w)
		p := promise(e)
		spoil(p.Reservation)
		p.Key = e.Key
		w.do(p)
		if has[StoreJob](w.effects) || !has[SendCancel](w.effects) {
			t.Errorf("%s: %s", what, describe(w.effects))
		}
	}
}

// TestAnswersOfTheBusOutOfTurn: an answer that belongs to no call that is out changes nothing.
func TestAnswersOfTheBusOutOfTurn(t *testing.T) {
	w := newWorld(t, Policy{})
	w.submit("acme", 6, 2)
	e := find1[SendReserve](w)
	w.do(Reserved{Key: e.Key, Err: FaultTimeout}) // tried again a little later
	if got := w.do(promise(e)); has[StoreJob](got) {
		t.Errorf("an answer while no Reserve is out: %s", describe(got))
	}
	w.pass(retryPause + 50*ms)
	w.do(promise(e))
	find1[StoreJob](w)
	for what, ev := range map[string]Reserved{"promise": promise(e), "refusal": {Key: e.Key, Refused: kvtransfer.Errorf(kvtransfer.InvalidRequest, "no")}} {
		if got := w.do(ev); len(got) > 0 {
			t.Errorf("a second %s: %s", what, describe(got))
		}
	}
	if got := w.do(JobStored{Key: kvtransfer.Key{ID: e.Key.ID, Attempt: 9}}); len(got) > 0 {
		t.Errorf("a job that failed, of no attempt: %s", describe(got))
	}
	if got := w.do(JobStored{Key: kvtransfer.Key{ID: e.Key.ID, Attempt: 9}, Sequence: 4}); !has[DropJob](got) {
		t.Errorf("a job stored for an attempt that is over: %s", describe(got))
	}
	w.do(JobStored{Key: e.Key, Err: FaultTimeout})
	if got := w.do(JobStored{Key: e.Key, Sequence: 5}); len(got) > 0 {
		t.Errorf("a job's answer while none is out: %s", describe(got))
	}
	if got := w.pass(retryPause + 50*ms); !has[StoreJob](got) {
		t.Errorf("no second try: %s", describe(got))
	}
	w.do(JobStored{Key: e.Key, Sequence: 5})
	if got := w.do(JobStored{Key: e.Key, Err: FaultTooLarge}); len(got) > 0 {
		t.Errorf("a second answer for the job: %s", describe(got))
	}
}

// TestTooLarge: what no message can hold is told to the client as such.
func TestTooLarge(t *testing.T) {
	for _, at := range []string{"reserve", "job"} {
		w := newWorld(t, Policy{})
		w.submit("acme", 6, 2)
		e := find1[SendReserve](w)
		if at == "reserve" {
			w.do(Reserved{Key: e.Key, Err: FaultTooLarge})
		} else {
			w.do(promise(e))
			w.do(JobStored{Key: e.Key, Err: FaultTooLarge})
		}
		if f := find1[Finish](w); f.End.Error.Code != kvtransfer.PayloadTooLarge || f.End.Finish != "" {
			t.Errorf("%s: %+v", at, f.End)
		}
	}
}

// TestRefusedByTheLastDecode: what only other workers could mend is told at once where there is no other.
func TestRefusedByTheLastDecode(t *testing.T) {
	for _, two := range []bool{false, true} {
		w := newWorld(t, Policy{})
		if two {
			w.do(Heard{beatOf(kvtransfer.RoleDecode, "d2", 1, 64, 4)})
		}
		w.submit("acme", 6, 2)
		e := find1[SendReserve](w)
		w.do(Reserved{Key: e.Key, Refused: kvtransfer.Errorf(kvtransfer.JournalDown, "full")})
		if two {
			if again := find1[SendReserve](w); again.To == e.To {
				t.Errorf("again to %s", again.To)
			}
		} else if f := find1[Finish](w); f.End.Error.Code != kvtransfer.JournalDown {
			t.Errorf("%+v", f.End)
		}
	}
}

// TestStatusIsTheTenants: nobody learns of another tenant's request, nor of one that is not there.
func TestStatusIsTheTenants(t *testing.T) {
	w := newWorld(t, Policy{})
	w.submit("acme", 6, 2)
	id := find1[Accept](w).ID
	ask := func(tenant string, id kvtransfer.HandoffID) StatusAnswered {
		w.do(StatusAsked{Ask: 1, Tenant: tenant, ID: id})
		return find1[StatusAnswered](w)
	}
	if a := ask("acme", id); !a.Found || a.Status.Prompt != 6 || a.Status.State != "reserving" {
		t.Errorf("its own: %+v", a)
	}
	if a := ask("bank", id); a.Found || a.Status != (Status{}) {
		t.Errorf("another tenant's: %+v", a)
	}
	if a := ask("acme", kvtransfer.HandoffID{99}); a.Found {
		t.Errorf("nobody's: %+v", a)
	}
}

// running is a request whose outcome was good.
func running(t *testing.T, maxTokens int) (*world, kvtransfer.Key) {
	t.Helper()
	w := newWorld(t, Policy{})
	w.submit("acme", 6, maxTokens)
	key := w.place()
	w.do(Replied{Key: key, Body: good()})
	find1[Begin](w)
	return w, key
}

// TestEndsThatAreNone: no reply of decode reads as success unless it says so, counts right and keeps to what was asked for.
func TestEndsThatAreNone(t *testing.T) {
	tokens := func(n int) []kvtransfer.Token { return make([]kvtransfer.Token, n) }
	for _, c := range []struct {
		what string
		body kvtransfer.ReplyBody
		code kvtransfer.Code // OK: the attempt is lost, and made again
	}{
		{"an error beside a finish", kvtransfer.ReplyBody{End: &kvtransfer.End{Finish: kvtransfer.FinishStop, Error: kvtransfer.Errorf(kvtransfer.DeadlineExceeded, "late"), Replies: 2}}, kvtransfer.DeadlineExceeded},
		{"a loss beside a finish", kvtransfer.ReplyBody{End: &kvtransfer.End{Finish: kvtransfer.FinishStop, Error: kvtransfer.Errorf(kvtransfer.WorkerLost, "lost"), Replies: 2}}, kvtransfer.OK},
		{"neither a finish nor an error", kvtransfer.ReplyBody{End: &kvtransfer.End{Replies: 2}}, kvtransfer.Invariant},
		{"replies missing", kvtransfer.ReplyBody{End: &kvtransfer.End{Finish: kvtransfer.FinishStop, Replies: 3}}, kvtransfer.OK},
		{"replies too many", kvtransfer.ReplyBody{End: &kvtransfer.End{Finish: kvtransfer.FinishStop, Replies: 1}}, kvtransfer.OK},
		{"a second outcome", good(), kvtransfer.OK},
		{"tokens too many", kvtransfer.ReplyBody{Tokens: tokens(3)}, kvtransfer.Invariant},
	} {
		w, key := running(t, 2)
		w.do(Replied{Key: key, Number: 1, Body: c.body})
		if c.code == kvtransfer.OK {
			if has[Finish](w.effects) || !has[SendReserve](w.effects) {
				t.Errorf("%s: %s", c.what, describe(w.effects))
			}
			continue
		}
		if f := find1[Finish](w); f.End.Error.Code != c.code || f.End.Finish != "" || has[Give](w.effects) {
			t.Errorf("%s: %s", c.what, describe(w.effects))
		}
	}
	w := newWorld(t, Policy{})
	w.submit("acme", 6, 2)
	key := w.place()
	w.do(Replied{Key: key, Body: kvtransfer.ReplyBody{Outcome: &kvtransfer.Outcome{}}})
	if f := find1[Finish](w); f.End.Error.Code != kvtransfer.Invariant {
		t.Errorf("a refusal without a reason: %s", describe(w.effects))
	}
	w.submit("acme", 6, 2)
	key = w.place()
	w.do(Replied{Key: key, Body: kvtransfer.ReplyBody{Tokens: tokens(1)}})
	if has[Give](w.effects) || has[Begin](w.effects) {
		t.Errorf("tokens before the outcome: %s", describe(w.effects))
	}
}

// TestResentByNobody: decode does not know the attempt, or answers what was not asked.
func TestResentByNobody(t *testing.T) {
	w, key := running(t, 4)
	if got := w.do(Resent{Key: key, Known: false}); len(got) > 0 {
		t.Errorf("an answer that nobody asked for: %s", describe(got))
	}
	if got := w.pass(silence + 100*ms); !has[AskResend](got) {
		t.Fatalf("silence: %s", describe(got))
	}
	w.do(Resent{Key: key, Known: false})
	if has[Finish](w.effects) || !has[SendReserve](w.effects) {
		t.Errorf("unknown to decode: %s", describe(w.effects))
	}
}

// TestDeadlineBetweenAttempts: a request whose time is up gets no new attempt, and says so.
func TestDeadlineBetweenAttempts(t *testing.T) {
	w := newWorld(t, Policy{DefaultDeadline: 10 * ms})
	w.submit("acme", 6, 2)
	key := w.place()
	w.l.Now(10 * ms) // no tick has noticed it yet
	w.do(Replied{Key: key, Body: bad(kvtransfer.LeaseExpired, "silent")})
	if f := find1[Finish](w); f.End.Error.Code != kvtransfer.DeadlineExceeded {
		t.Errorf("%s", describe(w.effects))
	}
}

// TestEndsOfStreams: what a door makes of the ways in which an answer can stop.
func TestEndsOfStreams(t *testing.T) {
	gone, stop := context.WithCancel(context.Background())
	stop()
	other := errors.New("another")
	if e, _ := AsError(endOf(context.Background(), io.EOF)); e.Detail != "router: an answer ended without its end" {
		t.Errorf("%v", e)
	}
	for _, c := range []struct {
		ctx  context.Context
		err  error
		code kvtransfer.Code
	}{
		{context.Background(), io.EOF, kvtransfer.Invariant},
		{gone, context.Canceled, kvtransfer.ClientGone},
		{gone, kvtransfer.Errorf(kvtransfer.WorkerLost, "lost"), kvtransfer.WorkerLost},
		{context.Background(), context.Canceled, kvtransfer.Invariant},
		{gone, other, kvtransfer.Invariant},
	} {
		if e, _ := AsError(endOf(c.ctx, c.err)); e.Code != c.code {
			t.Errorf("%v: %s, want %s", c.err, e.Code, c.code)
		}
	}
}

// TestRefusalsAreLogged: what says that pages were wrong or an invariant broke reaches the operator's log, with its status; a
// client's own mistake does not. Retry-After is there whenever coming again makes sense.
func TestRefusalsAreLogged(t *testing.T) {
	for _, m := range kvtransfer.Table {
		var log bytes.Buffer
		b := newFake(func(Request) ([]step, error) { return nil, kvtransfer.Errorf(m.Code, "router: 7 of 8") })
		s := serve(t, b, HTTPConfig{Log: slog.New(slog.NewTextHandler(&log, nil))})
		r := send(t, s, "POST", "/v1/chat/completions", chatBody)
		broke := m.Class == kvtransfer.ClassCorrupt || m.Class == kvtransfer.ClassBug
		if logged := strings.Contains(log.String(), "code="+string(m.Code)); logged != broke {
			t.Errorf("%s: logged %t: %s", m.Code, logged, log.String())
		}
		if again := r.header.Get("Retry-After"); (again != "") != (m.HTTP == 429 || m.HTTP == 503) {
			t.Errorf("%s: status %d Retry-After %q", m.Code, r.status, again)
		}
		if ask := r.header.Get("WWW-Authenticate"); (ask != "") != (m.HTTP == 401) {
			t.Errorf("%s: status %d WWW-Authenticate %q", m.Code, r.status, ask)
		}
	}
}

// TestBrokenStreamsAreLogged: the same for answers that had begun.
func TestBrokenStreamsAreLogged(t *testing.T) {
	for _, m := range kvtransfer.Table {
		var log bytes.Buffer
		b := newFake(func(Request) ([]step, error) {
			return []step{{part: Part{Started: true}}, {err: kvtransfer.Errorf(m.Code, "router: 7 of 8")}}, nil
		})
		s := serve(t, b, HTTPConfig{Log: slog.New(slog.NewTextHandler(&log, nil))})
		r := send(t, s, "POST", "/v1/chat/completions", streamBody)
		if logged := strings.Contains(log.String(), "code="+string(m.Code)); logged != (m.Class != kvtransfer.ClassRefused) {
			t.Errorf("%s: logged %t: %s", m.Code, logged, log.String())
		}
		if strings.Contains(r.body, "[DONE]") || !strings.Contains(r.body, `"code":"`+string(m.Code)+`"`) {
			t.Errorf("%s: %s", m.Code, r.body)
		}
	}
}

// TestResendsGoOn: an answer that does not bring everything is asked for more; one that ends the attempt is not.
func TestResendsGoOn(t *testing.T) {
	asking := func() (*world, kvtransfer.Key) {
		w, key := running(t, 4)
		if got := w.pass(silence + 100*ms); !has[AskResend](got) {
			t.Fatalf("silence: %s", describe(got))
		}
		return w, key
	}
	one := func(key kvtransfer.Key, number uint32) Replied {
		return Replied{Key: key, Number: number, Body: kvtransfer.ReplyBody{Tokens: make([]kvtransfer.Token, 1)}}
	}
	w, key := asking()
	w.do(Resent{Key: key, Known: true, Next: 3, Replies: []Replied{one(key, 1)}})
	if e := find1[AskResend](w); e.From != 2 || !has[Give](w.effects) {
		t.Errorf("one of two came: %s", describe(w.effects))
	}
	w, key = asking()
	w.do(Resent{Key: key, Known: true, Next: 3}) // they are on their way
	if has[AskResend](w.effects) {
		t.Errorf("nothing came: %s", describe(w.effects))
	}
	w, key = asking()
	w.do(one(key, 2)) // a gap shows while a resend is out
	w.do(Resent{Key: key, Known: true, Next: 3})
	if !has[AskResend](w.effects) {
		t.Errorf("a gap that showed meanwhile: %s", describe(w.effects))
	}
	w, key = asking()
	bad := Replied{Key: key, Number: 1, Body: kvtransfer.ReplyBody{End: &kvtransfer.End{Error: kvtransfer.Errorf(kvtransfer.DeadlineExceeded, "late"), Replies: 2}}}
	w.do(Resent{Key: key, Known: true, Next: 9, Replies: []Replied{bad, one(key, 2)}})
	for _, fx := range w.effects {
		if e, ok := fx.(AskResend); ok && !e.Ack || has[Give](w.effects) {
			t.Errorf("an attempt that has ended: %s", describe(w.effects))
		}
	}
}

// TestEndsAreAcknowledgedABoundedNumberOfTimes: a decode that is gone is not told for ever.
func TestEndsAreAcknowledgedABoundedNumberOfTimes(t *testing.T) {
	w, key := running(t, 4)
	w.do(Replied{Key: key, Number: 1, Body: kvtransfer.ReplyBody{End: &kvtransfer.End{Finish: kvtransfer.FinishStop, Replies: 2}}})
	find1[AskResend](w)
	for range maxTries {
		if w.l.Stats().Closing != 1 {
			t.Fatalf("closing %d", w.l.Stats().Closing)
		}
		w.do(Resent{Key: key, Err: FaultTimeout})
		w.pass(silence + 100*ms)
	}
	if n := w.l.Stats().Closing; n != 0 {
		t.Errorf("closing %d after %d tries", n, maxTries)
	}
}

// TestEndsAreRecorded: the reason, and how long it waited before its first attempt.
func TestEndsAreRecorded(t *testing.T) {
	w := newWorld(t, Policy{MaxRunningTenant: 1})
	w.submit("acme", 6, 2)
	first := w.place()
	w.submit("acme", 6, 2)
	id := find1[Accept](w).ID
	w.pass(300 * ms)
	w.do(CancelAsked{Tenant: "acme", ID: id})
	if f := find1[Record](w).Finished; f.Queued != 300*ms || f.Took != 300*ms || f.Error.Code != kvtransfer.Cancelled {
		t.Errorf("never placed: %+v", f)
	}
	w.do(Replied{Key: first, Body: good()})
	w.do(Replied{Key: first, Number: 1, Body: kvtransfer.ReplyBody{End: &kvtransfer.End{Finish: kvtransfer.FinishStop, Replies: 2}}})
	if f := find1[Record](w).Finished; f.Queued != 0 || f.Took != 300*ms || f.Finish != kvtransfer.FinishStop {
		t.Errorf("placed at once: %+v", f)
	}
	if ends := w.l.Stats().Ends; ends["cancelled"] != 1 || ends["stop"] != 1 || len(ends) != 2 {
		t.Errorf("%v", ends)
	}
}

// TestJobStoredBeforeItsReserve: an answer to a job that this attempt has not sent names nothing that is deleted later.
func TestJobStoredBeforeItsReserve(t *testing.T) {
	w := newWorld(t, Policy{})
	w.submit("acme", 6, 2)
	e := find1[SendReserve](w)
	w.do(JobStored{Key: e.Key, Sequence: 77})
	w.do(CancelAsked{Tenant: "acme", ID: e.Key.ID})
	if has[DropJob](w.effects) {
		t.Errorf("%s", describe(w.effects))
	}
}
