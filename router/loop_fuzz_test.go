package router

import (
	"testing"

	"pgregory.net/rapid"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// FuzzHandle feeds one loop events made of bytes: what clients do, and what workers that hold keys could say. It never panics, keeps
// its invariants, and gives every request one end once the world is honest again.
func FuzzHandle(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		oneTerminal(t, func(w *watcher, t *rapid.T) {
			if rapid.Bool().Draw(t, "honest") {
				w.random(t)
			} else {
				w.hostile(t)
			}
		})
	}))
}

// odd are numbers that no honest worker has reason to say.
var odd = []int{0, 1, -1, 2, 7, 64, 1 << 20, 1<<31 - 1, -1 << 31, 1<<62 + 1}

// hostile is an event whose content lies.
func (w *watcher) hostile(t *rapid.T) {
	number := func(name string) int { return rapid.SampledFrom(odd).Draw(t, name) }
	r, open := pick(t, w.reserves, "attempt")
	switch rapid.IntRange(0, 6).Draw(t, "lie") {
	case 0:
		hb := beatOf(rapid.SampledFrom([]kvtransfer.Role{kvtransfer.RolePrefill, kvtransfer.RoleDecode, kvtransfer.RoleRouter, ""}).Draw(t, "role"),
			rapid.SampledFrom([]string{"p0", "d0", "d1", "", kvtransfer.AnyWorker}).Draw(t, "id"), uint64(rapid.IntRange(0, 3).Draw(t, "epoch")), number("pages"), number("slots"))
		hb.PageSize, hb.Running, hb.MaxModelLen = number("page size"), number("running"), number("longest")
		hb.SlotsFree, hb.Pages = number("slots free"), page.Counts{Total: number("total"), Free: number("free")}
		hb.Draining = rapid.Bool().Draw(t, "draining")
		w.do(t, Heard{hb})
	case 1:
		if open {
			w.do(t, w.lyingPromise(t, r, number))
		}
	case 2:
		if open {
			body := kvtransfer.ReplyBody{}
			if rapid.Bool().Draw(t, "outcome") {
				body.Outcome = &kvtransfer.Outcome{OK: rapid.Bool().Draw(t, "ok"), Prefill: kvtransfer.Peer{ID: rapid.SampledFrom([]string{"", "p0", "x"}).Draw(t, "by")}}
			}
			body.Tokens = make([]kvtransfer.Token, rapid.IntRange(0, 9).Draw(t, "tokens"))
			if rapid.Bool().Draw(t, "end") {
				body.End = &kvtransfer.End{Finish: rapid.SampledFrom([]kvtransfer.Finish{"", kvtransfer.FinishStop}).Draw(t, "finish"), Prompt: number("prompt"), Output: number("output"), Replies: uint32(number("replies"))}
			}
			w.do(t, Replied{Key: r.Key, Number: uint32(number("number")), Body: body})
		}
	case 3:
		if open {
			ev := Resent{Key: r.Key, Known: rapid.Bool().Draw(t, "known"), Next: uint32(number("next")), Err: BusFault(rapid.SampledFrom([]string{"", "timeout", "else"}).Draw(t, "fault"))}
			for range rapid.IntRange(0, 3).Draw(t, "replies") {
				ev.Replies = append(ev.Replies, Replied{Key: r.Key, Number: uint32(number("number")), Body: w.body(t, uint32(rapid.IntRange(0, 1).Draw(t, "shape")))})
			}
			w.do(t, ev)
		}
	case 4:
		w.do(t, JobStored{Key: kvtransfer.Key{ID: r.Key.ID, Attempt: uint32(rapid.IntRange(0, 2).Draw(t, "attempt"))}, Sequence: uint64(number("sequence")), Err: BusFault(rapid.SampledFrom([]string{"", "else"}).Draw(t, "fault"))})
	case 5:
		w.do(t, StatusAsked{Tenant: rapid.SampledFrom([]string{"a", ""}).Draw(t, "tenant"), ID: r.Key.ID})
	case 6:
		if rapid.IntRange(0, 20).Draw(t, "drain") == 0 {
			w.do(t, Drain{Left: kvtransfer.Tick(number("left"))})
		}
		w.do(t, Tick{Now: kvtransfer.Tick(rapid.IntRange(-5000, 5000).Draw(t, "back"))*ms + w.now})
	}
}

// lyingPromise is a reservation in which one thing or more is not what was asked for.
func (w *watcher) lyingPromise(t *rapid.T, r SendReserve, number func(string) int) Reserved {
	ev := promise(r)
	for range rapid.IntRange(1, 3).Draw(t, "lies") {
		if ev.Reservation == nil {
			break
		}
		switch rapid.IntRange(0, 6).Draw(t, "field") {
		case 0:
			ev.Reservation.N = number("n")
		case 1:
			ev.Reservation.MaxTokens = number("max")
		case 2:
			ev.Reservation.PageSize = number("page size")
		case 3:
			ev.Reservation.C = number("cached")
		case 4:
			ev.Reservation.Pages = nil
		case 5:
			ev.Reservation.Tenant = "bank"
		case 6:
			ev.Reservation, ev.Refused = nil, kvtransfer.Error{Code: kvtransfer.Code(rapid.SampledFrom([]string{"", "no_such_code", string(kvtransfer.Mismatch)}).Draw(t, "code"))}
		}
	}
	return ev
}
