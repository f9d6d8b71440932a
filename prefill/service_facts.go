package prefill

import (
	"errors"
	"slices"

	"quire/journal"
	"quire/kvtransfer"
)

// What a prefill worker puts into the journal: its start, its leg of each hand-off, pages that are free again. Nothing waits
// for these; a full buffer turns them away and the next checkpoint says how many.

// record hands a fact to the journal's buffer.
func (s *Service) record(r journal.Record) {
	r.At = s.now()
	if err := s.journal.Put(r); !errors.Is(err, journal.ErrFull) { // what is turned away is counted, and told when it begins
		s.warn("journal", err)
	}
}

// started is the first record of a life: what it runs with.
func (s *Service) started() journal.Record {
	info, f := s.cfg.Engine.Info(), s.loop.Figures()
	return journal.Record{Facts: journal.Started{
		Version: s.cfg.Version, Model: s.cfg.Model, PageSize: info.PageSize, Pages: info.Pages, Layers: info.Layers,
		MaxModelLen: f.MaxModelLen, Slots: f.Slots, Chunk: s.loop.cfg.Chunk, Mixed: s.cfg.MixedCompute,
		Weights: info.Fingerprints.Model, Layout: info.Fingerprints.Layout, Compute: info.Fingerprints.Compute,
	}}
}

func sent(fx Ended) journal.Record {
	return journal.Record{Key: fx.Key, Tenant: fx.Tenant, Facts: journal.Sent{
		State: fx.State.String(), Code: string(fx.Error.Code), Detail: fx.Error.Detail, Claim: journal.ID(fx.Claim), N: fx.N, Rows: fx.Rows,
		Frames: fx.Frames, Pages: journal.Slots(fx.Pages), TookMicros: int64(fx.Took), ComputeMicros: int64(fx.Computed),
	}}
}

func zeroed(fx Freed) journal.Record {
	z := journal.Zeroed{ReleasedMicros: int64(fx.Released)}
	for _, id := range slices.Sorted(slices.Values(fx.Pages)) {
		z.Pages = z.Pages.Add(int(id), int(id)+1)
	}
	return journal.Record{Facts: z}
}

// journalChanged logs when facts are not taken, and when they are again.
func (s *Service) journalChanged(err error) {
	if err != nil {
		s.cfg.Log.Warn("prefill: journal does not take facts", "error", err)
		return
	}
	s.cfg.Log.Info("prefill: journal takes facts again")
}

// newJournal makes the writer of this life.
func (s *Service) newJournal() *journal.Writer {
	return journal.NewWriter(journal.Config{
		Bus: s.cfg.Bus, Names: s.cfg.Names, Peer: s.peer, Signer: s.signer, Off: s.cfg.JournalOff, Notify: s.journalChanged, Now: func() kvtransfer.Tick { return s.now() },
	})
}
