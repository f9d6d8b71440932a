package decode

import (
	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// onPages answers a router that asks who has which pages. The loop is asked between two events, on its own goroutine.
func (l *life) onPages(m bus.Msg) {
	_, ask, err := open[kvtransfer.PagesAsk](l.cfg.Keys, m.Data, kvtransfer.KindPagesAsk)
	if err != nil || ask.Worker != l.peer || m.Reply == "" {
		l.unsigned.Add(1)
		return
	}
	l.postInput(input{look: func() {
		pages := l.loop.Pages()
		l.outbox.push(func() {
			body, err := wire.Encode(pages)
			if err == nil {
				err = l.cfg.Bus.Publish(m.Reply, nil, seal.Sign(l.s.signer, l.peer, kvtransfer.KindPages, body))
			}
			l.warn("pages", err)
		})
	}})
}
