package decode

import (
	"quire/journal"
	"quire/kvtransfer"
)

// record is the fact as the journal keeps it.
func (f Fact) record(at kvtransfer.Tick) journal.Record {
	r := journal.Record{At: at, Key: f.Key, Tenant: f.Tenant}
	switch f.Kind {
	case FactReserved:
		p := journal.Reserved{
			Reservation: f.Reservation, Router: f.Router.String(), N: f.N, C: f.C, MaxTokens: f.MaxTokens, Digest: f.Digest,
			PageSize: f.PageSize, Pages: journal.Slots(f.Pages), LeaseMicros: int64(f.Lease),
		}
		if f.Prompt != f.N {
			p.Prompt = f.Prompt
		}
		r.Facts = p
	case FactClaimed:
		r.Facts = journal.Claimed{Claim: journal.ID(f.Claim), Prefill: f.Prefill.String()}
	case FactRefused:
		r.Facts = journal.Refused{What: f.What, Count: f.Count, Index: f.Index, Code: string(f.Error.Code), Detail: f.Error.Detail}
	case FactVerdict:
		r.Facts = journal.Verdict{
			Path: "received", OK: f.OK, Check: f.Check, Code: string(f.Error.Code), Detail: f.Error.Detail, Reservation: f.Reservation,
			Claim: journal.ID(f.Claim), N: f.N, C: f.C, Sent: f.Sent, Frames: f.Frames, Digest: f.FramesDigest,
			Pages: journal.Slots(f.Pages), Written: spans(f.Written), Repeated: f.Repeated, Refused: f.Refused,
			ManifestMicros: int64(f.StatedAt), FirstMicros: int64(f.FirstAt),
		}
	case FactWitness:
		r.Facts = journal.Witness{
			Result: f.Witness, Detail: f.Error.Detail, Read: f.Read, Written: spans(f.Written), OwnedMicros: int64(f.OwnedAt),
			Unjournaled: f.Unjournaled, FirstToken: f.Error.IsZero(),
		}
	case FactFinished:
		r.Facts = journal.Finished{
			Finish: string(f.Finish), Code: string(f.Error.Code), Detail: f.Error.Detail, Witness: f.Witness,
			Prompt: f.Prompt, Output: f.Output, Replies: uint32(f.Replies), Pages: len(f.Pages),
			Quarantined: f.Error.Class() == kvtransfer.ClassCorrupt, Read: f.Read, Rows: f.Rows, Written: spans(f.Written),
			Unjournaled: f.Unjournaled,
		}
	case FactZeroed:
		r.Facts = journal.Zeroed{Pages: spans(f.Zeroed), ReleasedMicros: int64(f.ReleasedAt)}
	}
	return r
}

func spans(s [][2]int) journal.Spans {
	out := make(journal.Spans, len(s))
	for i, o := range s {
		out[i] = journal.Span(o)
	}
	return out
}

// started is the first record of a life: what it runs with.
func (l *life) started() journal.Record {
	info := l.cfg.Engine.Info()
	beat := l.loop.heartbeat()
	return journal.Record{At: l.now(), Facts: journal.Started{
		Version: l.cfg.Version, Model: l.cfg.Model, PageSize: info.PageSize, Pages: info.Pages, Layers: info.Layers,
		MaxModelLen: beat.MaxModelLen, Slots: beat.Slots, LeaseMicros: int64(l.cfg.Lease), Open: l.cfg.JournalOptional, Taped: len(l.cfg.Taped),
		Weights: info.Fingerprints.Model, Layout: info.Fingerprints.Layout, Compute: info.Fingerprints.Compute,
	}}
}
