package router

import (
	"quire/journal"
	"quire/tape"
)

// What a router puts into the journal: its start, each attempt's job, each request's end. Nothing waits for these; a full
// buffer turns them away and the next checkpoint says how many.

// put hands a fact to the journal's buffer.
func (s *Service) put(r journal.Record) {
	r.At = s.now()
	if err := s.journal.Put(r); err != nil {
		s.meter.unrecorded.Inc()
	}
}

func (s *Service) started() journal.Record {
	p := s.loop.policy
	limit := s.cfg.Served.Context
	if p.MaxModelLen > 0 {
		limit = min(limit, p.MaxModelLen)
	}
	return journal.Record{Facts: journal.Started{
		Version: s.cfg.Version, Model: s.cfg.Served.Name, MaxModelLen: limit, Weights: s.cfg.Served.Fingerprint, Queue: p.MaxQueue,
		TenantQueue: p.MaxQueueTenant, MaxAttempts: p.MaxAttempts, MaxTokens: p.DefaultMaxTokens, Mixed: p.MixedCompute, Taped: len(s.cfg.Taped),
	}}
}

func placed(p Placed) journal.Record {
	return journal.Record{Key: p.Key, Tenant: p.Tenant, Facts: journal.Job{
		Decode: p.Decode.String(), Prompt: p.Prompt, MaxTokens: p.MaxTokens, Resumed: p.Resumed, Limit: p.Limit.Tokens, LimitBy: p.Limit.By,
		Target: p.Target, Sequence: p.Sequence, QueuedMicros: int64(p.Queued),
	}}
}

func finished(f Finished) journal.Record {
	facts := journal.Finished{
		Finish: string(f.Finish), Code: string(f.Error.Code), Detail: f.Error.Detail, Prompt: f.Prompt, Output: f.Output, Seed: f.Seed,
		Attempts: f.Attempts, TookMicros: int64(f.Took), QueuedMicros: int64(f.Queued),
	}
	if f.Attempts > 0 {
		facts.Decode = f.Decode.String()
	}
	return journal.Record{Key: f.Key, Tenant: f.Tenant, Facts: facts}
}

// take is a request as the tape keeps it.
func (s *Service) take(e Tape) tape.Take {
	return tape.Take{Handoff: e.ID, Tenant: e.Tenant, Model: s.cfg.Served.Name, Weights: s.cfg.Served.Fingerprint, Prompt: e.Prompt,
		Output: e.Output, Sampling: e.Sampling, Max: e.Max, Finish: e.Finish}
}
