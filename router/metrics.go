package router

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/VictoriaMetrics/metrics"

	"quire/kvtransfer"
)

// meter measures what clients feel. The loop's goroutine writes it; anyone may read. No tenant is ever a label.
type meter struct {
	set        *metrics.Set
	ttft       *metrics.PrometheusHistogram // from Submit to the first token, seconds
	itl        *metrics.PrometheusHistogram // between two deliveries, per token, seconds
	whole      *metrics.PrometheusHistogram
	prompts    *metrics.Counter
	ignored    *metrics.Counter // messages whose signature, seal or shape is wrong
	late       *metrics.Counter // replies to attempts that are over
	unrecorded *metrics.Counter // facts that the journal's buffer did not take

	open map[uint64]*timing // the loop's goroutine alone
}

type timing struct{ submitted, last kvtransfer.Tick }

func newMeter() *meter {
	set := metrics.NewSet()
	buckets := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	return &meter{
		set:        set,
		ttft:       set.NewPrometheusHistogramExt("quire_time_to_first_token_seconds", buckets),
		itl:        set.NewPrometheusHistogramExt("quire_inter_token_latency_seconds", buckets),
		whole:      set.NewPrometheusHistogramExt("quire_e2e_request_latency_seconds", buckets),
		prompts:    set.NewCounter("quire_prompt_tokens_total"),
		ignored:    set.NewCounter("quire_router_messages_ignored_total"),
		late:       set.NewCounter("quire_router_late_replies_total"),
		unrecorded: set.NewCounter("quire_journal_dropped_total"),
		open:       map[uint64]*timing{},
	}
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
		m.ttft.Update(seconds(now - t.submitted))
	} else {
		each := seconds(now-t.last) / float64(len(e.Tokens))
		for range e.Tokens {
			m.itl.Update(each)
		}
	}
	t.last = now
}

func (m *meter) finished(e Finish, now kvtransfer.Tick) {
	if t := m.open[e.Ref]; t != nil {
		m.whole.Update(seconds(now - t.submitted))
		delete(m.open, e.Ref)
	}
}

func seconds(t kvtransfer.Tick) float64 { return float64(t) / float64(kvtransfer.Second) }

// WriteMetrics writes the router's metrics as Prometheus text.
func (s *Service) WriteMetrics(w io.Writer) {
	s.meter.set.WritePrometheus(w)
	st := s.Stats()
	gauge := func(name string, v any) { fmt.Fprintf(w, "# TYPE %s gauge\n%s %v\n", name, name, v) }
	counter := func(name string, v uint64) { fmt.Fprintf(w, "# TYPE %s counter\n%s %d\n", name, name, v) }
	counter("quire_requests_total", st.Submitted)
	counter("quire_handoff_attempts_total", st.Attempts)
	counter("quire_handoff_lost_total", st.Lost)
	counter("quire_handoff_retries_total", st.Retries)
	counter("quire_handoff_corrupt_total", st.Corrupt)
	counter("quire_reserve_refused_total", st.ReserveRefused)
	counter("quire_reply_resends_total", st.Resends)
	counter("quire_reply_gaps_total", st.ReplyGaps)
	counter("quire_replies_ignored_total", st.RepliesIgnored)
	counter("quire_generation_tokens_total", st.OutputTokens)
	fmt.Fprintf(w, "# TYPE quire_requests_finished_total counter\n")
	for _, reason := range slices.Sorted(maps.Keys(st.Ends)) {
		fmt.Fprintf(w, "quire_requests_finished_total{reason=%q} %d\n", reason, st.Ends[reason])
	}
	gauge("quire_requests_waiting", st.Queued)
	gauge("quire_requests_prefilling", st.Prefilling)
	gauge("quire_requests_running", st.Running)
	gauge("quire_attempts_closing", st.Closing)
	gauge("quire_prefill_workers", st.Prefills)
	gauge("quire_decode_workers", st.Decodes)
	gauge("quire_max_model_len_tokens", st.Limit.Tokens)
	gauge("quire_queue_oldest_seconds", seconds(st.Oldest))
	fmt.Fprint(w, "# TYPE quire_pages gauge\n")
	for _, hb := range st.Workers {
		p := hb.Pages
		for _, of := range []struct {
			state string
			n     int
		}{{"free", p.Free}, {"reserved", p.Reserved}, {"filling", p.Filling}, {"owned", p.Owned}, {"zeroing", p.Zeroing}, {"quarantined", p.Quarantined}} {
			fmt.Fprintf(w, "quire_pages{role=%q,id=%q,state=%q} %d\n", string(hb.Peer.Role), hb.Peer.ID, of.state, of.n)
		}
	}
	fmt.Fprint(w, "# TYPE quire_worker_slots_free gauge\n")
	for _, hb := range st.Workers {
		fmt.Fprintf(w, "quire_worker_slots_free{role=%q,id=%q} %d\n", string(hb.Peer.Role), hb.Peer.ID, hb.SlotsFree)
	}
	j := s.journal.Stats()
	gauge("quire_journal_pending_records", j.Pending)
	counter("quire_journal_records_total", j.Stored)
}
