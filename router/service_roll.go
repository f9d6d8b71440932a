package router

import (
	"maps"
	"slices"

	"quire/kvtransfer"
)

// roll tells the operator in one line each who comes, goes, starts again or drains, and when the limit changes. It changes nothing.
type roll struct {
	seen  map[string]kvtransfer.Heartbeat // by role and id
	limit Limit
}

func (s *Service) call(st *Stats) {
	now := make(map[string]kvtransfer.Heartbeat, len(st.Workers))
	for _, hb := range st.Workers {
		now[string(hb.Peer.Role)+" "+hb.Peer.ID] = hb
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		hb, was := now[name], s.roll.seen[name]
		switch {
		case was.Peer.Epoch == 0:
			s.cfg.Log.Info("worker came", "worker", name, "epoch", hb.Peer.Epoch, "pool_tokens", hb.Pages.Total*hb.PageSize)
		case was.Peer.Epoch != hb.Peer.Epoch:
			s.cfg.Log.Warn("worker started again", "worker", name, "epoch", hb.Peer.Epoch, "was", was.Peer.Epoch)
		case hb.Draining && !was.Draining:
			s.cfg.Log.Info("worker drains", "worker", name, "running", hb.Running)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.roll.seen)) {
		was := s.roll.seen[name]
		if _, there := now[name]; there {
			continue
		}
		if was.Draining {
			s.cfg.Log.Info("worker left", "worker", name)
		} else {
			s.cfg.Log.Warn("worker went silent", "worker", name, "epoch", was.Peer.Epoch, "running", was.Running)
		}
	}
	if l := st.Limit; l.Tokens != s.roll.limit.Tokens && l.Tokens > 0 {
		s.cfg.Log.Info("limit", "tokens", l.Tokens, "set_by", l.By)
		s.roll.limit = l
	}
	s.roll.seen = now
}
