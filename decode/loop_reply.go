package decode

import "quire/kvtransfer"

// reply numbers a reply, keeps it for a resend and sends it.
func (l *Loop) reply(h *handoff, b kvtransfer.ReplyBody) {
	h.replies = append(h.replies, b)
	l.do(l.sealed(h, len(h.replies)-1))
}

// sealed is reply n as it is sent, the first time and every other: the same bytes under the same number.
func (l *Loop) sealed(h *handoff, n int) SendReply {
	return SendReply{
		To:     h.router,
		Header: kvtransfer.ReplyHeader{Key: h.key(), Number: uint32(n), DecodeKey: h.in.Reservation.DecodeKey},
		Body:   h.replies[n], ReplyKey: h.replyKey, Hash: h.in.Hash,
	}
}

// tellEnd tells the router how the attempt ended: as the outcome, where nothing was said yet, else as the end.
func (l *Loop) tellEnd(h *handoff) {
	if !h.told {
		h.told = true
		l.reply(h, kvtransfer.ReplyBody{Outcome: &kvtransfer.Outcome{Error: h.in.Err, Prefill: h.in.Prefill}})
		return
	}
	end := kvtransfer.End{
		Error: h.in.Err, Prompt: h.prompt, Output: h.in.Reservation.N - h.prompt + h.output, Replies: uint32(len(h.replies)) + 1,
	}
	if end.Error.IsZero() {
		end.Finish, end.Text, end.Stop = h.finish, h.held, h.stop
	}
	l.reply(h, kvtransfer.ReplyBody{End: &end})
}

// onResend answers with what the router has not got, and forgets what it acknowledges. It is a sign of life too.
func (l *Loop) onResend(e ResendAsked) {
	h, ok := l.get(e.M.Key)
	if !ok || e.From != h.router {
		l.count.ResendsRefused++
		l.do(Resent{ID: e.ID, Key: e.M.Key})
		return
	}
	l.routers[h.router] = l.now
	next := uint32(len(h.replies))
	r := Resent{ID: e.ID, Key: e.M.Key, Known: true, Next: next}
	if e.M.Ack {
		l.do(r)
		l.abandon(h, kvtransfer.Errorf(kvtransfer.Cancelled, "decode: the router gave the attempt up"))
		return
	}
	for n := e.M.From; n < next && len(r.Replies) < resendLimit; n++ {
		r.Replies = append(r.Replies, l.sealed(h, int(n)))
	}
	l.count.RepliesResent += uint64(len(r.Replies))
	l.do(r)
}
