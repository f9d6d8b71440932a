package prefill

import (
	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/wire"
)

// onPages answers a router that asks who has which pages. The loop is asked between two events, on its own goroutine.
func (s *Service) onPages(m bus.Msg) {
	_, ask, err := open[kvtransfer.PagesAsk](s.cfg.Keys, m.Data, kvtransfer.KindPagesAsk)
	if err != nil || ask.Worker != s.peer || m.Reply == "" {
		s.unsigned.Add(1)
		return
	}
	s.postInput(input{look: func() {
		pages := s.loop.Pages()
		s.control.push(func() {
			body, err := wire.Encode(pages)
			if err == nil {
				err = s.cfg.Bus.Publish(m.Reply, nil, s.sign(kvtransfer.KindPages, body))
			}
			s.warn("pages", err)
		})
	}})
}
