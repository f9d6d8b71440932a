package router

import (
	"io"
	"maps"
	"slices"

	"quire/kvtransfer"
)

// meter measures what clients feel. The loop's goroutine writes it; anyone may read. No tenant is ever a label.
type meter struct {
	ttft       *histogram // from Submit to the first token, seconds
	itl        *histogram // between two deliveries, per token, seconds
	whole      *histogram
	prompts    counter
	ignored    counter // messages whose signature, seal or shape is wrong
	late       counter // replies to attempts that are over
	unrecorded counter // facts that the journal's buffer did not take

	open map[uint64]*timing // the loop's goroutine alone
}

type timing struct{ submitted, last kvtransfer.Tick }

// buckets of the latencies, in seconds.
var buckets = []float64{.0025, .005, .01, .015, .025, .04, .06, .1, .15, .25, .4, .6, 1, 1.5, 2.5, 5, 10, 20, 40, 80, 160, 300}

// fine are the buckets of the time between tokens: a small model makes one in less than a millisecond.
var fine = []float64{.0005, .001, .0015, .0025, .004, .006, .01, .015, .025, .04, .06, .1, .15, .25, .5, 1, 2.5, 5, 10, 30}

func newMeter() *meter {
	return &meter{ttft: newHistogram(buckets), itl: newHistogram(fine), whole: newHistogram(buckets), open: map[uint64]*timing{}}
}

func (m *meter) accepted(e Accept, now kvtransfer.Tick) {
	m.open[e.Ref] = &timing{submitted: now, last: -1}
	m.prompts.Add(e.Prompt)
}

func (m *meter) gave(e Give, now kvtransfer.Tick) {
	t := m.open[e.Ref]
	if t == nil {
		return
	}
	if t.last < 0 {
		m.ttft.observe(seconds(now-t.submitted), 1)
	} else {
		m.itl.observe(seconds(now-t.last)/float64(len(e.Tokens)), len(e.Tokens))
	}
	t.last = now
}

func (m *meter) finished(e Finish, now kvtransfer.Tick) {
	if t := m.open[e.Ref]; t != nil {
		m.whole.observe(seconds(now-t.submitted), 1)
		delete(m.open, e.Ref)
	}
}

func seconds(t kvtransfer.Tick) float64 { return float64(t) / float64(kvtransfer.Second) }

// WriteMetrics writes the router's metrics as Prometheus text.
func (s *Service) WriteMetrics(w io.Writer) {
	e, m, st := exposition{w}, s.meter, s.Stats()
	e.family("quire_build_info", "gauge", "Version of this build and the model that is served; always 1.",
		[]sample{{[]string{"version", s.cfg.Version, "model", s.cfg.Served.Name}, 1}})
	s.writeRequests(e, st)
	e.histogram("quire_time_to_first_token_seconds", "Time from a request's admission to its first token.", m.ttft)
	e.histogram("quire_inter_token_latency_seconds", "Time between two tokens of one answer.", m.itl)
	e.histogram("quire_e2e_request_latency_seconds", "Time from a request's admission to its end.", m.whole)
	s.writeHandoffs(e, st)
	s.writeWorkers(e, st)
	j := s.journal.Stats()
	e.gauge("quire_journal_pending_records", "Facts that wait for the journal.", j.Pending)
	e.counter("quire_journal_records_total", "Facts of this router that the journal has.", j.Stored)
	e.counter("quire_journal_dropped_total", "Facts of this router that a full buffer turned away.", m.unrecorded.Get())
}

func (s *Service) writeRequests(e exposition, st Stats) {
	e.counter("quire_requests_total", "Requests that came, admitted or not.", st.Submitted)
	var ends []sample
	for _, reason := range slices.Sorted(maps.Keys(st.Ends)) {
		ends = append(ends, sample{[]string{"reason", reason}, st.Ends[reason]})
	}
	e.family("quire_requests_finished_total", "counter", "Requests that ended, by finish reason or error code.", ends)
	e.counter("quire_prompt_tokens_total", "Tokens of the prompts that were admitted.", s.meter.prompts.Get())
	e.counter("quire_generation_tokens_total", "Tokens that were given to clients.", st.OutputTokens)
	e.gauge("quire_requests_waiting", "Requests in the queue.", st.Queued)
	e.gauge("quire_requests_prefilling", "Requests whose pages are promised and not yet admitted.", st.Prefilling)
	e.gauge("quire_requests_running", "Requests that gate and witness have let run.", st.Running)
	e.gauge("quire_queue_oldest_seconds", "For how long the oldest request in the queue has waited; 0 when none does.", seconds(st.Oldest))
	e.gauge("quire_max_model_len_tokens", "Tokens that a request may take now, prompt and answer together.", st.Limit.Tokens)
}

func (s *Service) writeHandoffs(e exposition, st Stats) {
	e.counter("quire_handoff_attempts_total", "Attempts of hand-offs, each with a reservation of its own.", st.Attempts)
	e.counter("quire_handoff_lost_total", "Attempts that ended without an answer and without the client's doing.", st.Lost)
	e.counter("quire_handoff_retries_total", "Attempts after the first of a request.", st.Retries)
	e.counter("quire_handoff_corrupt_total", "Attempts that the gate or the witness refused.", st.Corrupt)
	e.counter("quire_reserve_refused_total", "Reservations that a decode refused.", st.ReserveRefused)
	e.counter("quire_reply_resends_total", "Times that a decode was asked for replies again.", st.Resends)
	e.counter("quire_reply_gaps_total", "Gaps seen in numbered replies.", st.ReplyGaps)
	e.counter("quire_replies_ignored_total", "Replies that fitted no attempt or came twice.", st.RepliesIgnored)
	e.counter("quire_router_late_replies_total", "Replies to attempts that were over.", s.meter.late.Get())
	e.counter("quire_router_messages_ignored_total", "Messages whose signature, seal or shape was wrong.", s.meter.ignored.Get())
	e.gauge("quire_attempts_closing", "Attempts whose end decode has still to be told of.", st.Closing)
}

func (s *Service) writeWorkers(e exposition, st Stats) {
	e.gauge("quire_prefill_workers", "Prefill workers that can be used.", st.Prefills)
	e.gauge("quire_decode_workers", "Decode workers that can be used.", st.Decodes)
	var pages, free []sample
	for _, hb := range st.Workers {
		p, who := hb.Pages, []string{"role", string(hb.Peer.Role), "id", hb.Peer.ID}
		for _, of := range []struct {
			state string
			n     int
		}{{"free", p.Free}, {"reserved", p.Reserved}, {"filling", p.Filling}, {"owned", p.Owned}, {"zeroing", p.Zeroing}, {"quarantined", p.Quarantined}} {
			pages = append(pages, sample{append(slices.Clone(who), "state", of.state), of.n})
		}
		free = append(free, sample{who, hb.SlotsFree})
	}
	e.family("quire_pages", "gauge", "Pages of each worker's pool by state; the states of a pool add up to all of it.", pages)
	s.writeRefused(e, st)
	e.family("quire_worker_slots_free", "gauge", "Requests that a worker could take on beside those it has.", free)
}

// writeRefused says what was turned away by everybody that this router hears of, by reason: reasons of other roles are left out.
func (s *Service) writeRefused(e exposition, st Stats) {
	var list []sample
	add := func(p kvtransfer.Peer, reason string, n uint64) {
		list = append(list, sample{[]string{"role", string(p.Role), "id", p.ID, "reason", reason}, n})
	}
	add(s.peer, "unsigned", s.meter.ignored.Get())
	add(s.peer, "reply", st.RepliesIgnored)
	add(s.peer, "late_reply", s.meter.late.Get())
	for _, hb := range st.Workers {
		for _, r := range hb.Refused.Reasons() {
			if isOf(hb.Peer.Role, r.Name) {
				add(hb.Peer, r.Name, r.Count)
			}
		}
	}
	e.family("quire_messages_refused_total", "counter", "Messages that a process turned away, by reason; a worker's as of its last heartbeat, from its start on.", list)
}

// isOf says whether a role ever refuses anything for a reason.
func isOf(role kvtransfer.Role, reason string) bool {
	switch reason {
	case "unsigned", "control":
		return true
	case "job":
		return role == kvtransfer.RolePrefill
	}
	return role == kvtransfer.RoleDecode
}
