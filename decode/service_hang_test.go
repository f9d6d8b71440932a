package decode

import (
	"strings"
	"testing"
	"time"

	"quire/kvtransfer/page"
	"quire/model"
)

// hungEngine does not answer a Write until it is let go.
type hungEngine struct {
	model.Engine
	free chan struct{}
}

func (e hungEngine) Write(g page.Grant, r model.Range, src []byte) error {
	<-e.free
	return e.Engine.Write(g, r, src)
}

// A life that ends for want of its stream while the device hangs cannot be followed by another: nothing of it may touch the pages
// then. The worker stops instead of waiting for ever, neither serving nor ending.
func TestServiceStopsWhenItsLastLifeHangs(t *testing.T) {
	var free chan struct{}
	inSite(t, func(c *Config) {
		free = make(chan struct{})
		c.Engine = hungEngine{c.Engine, free}
	}, func(x *site) {
		j := x.reserve(key(1), prompt(6, 1), 2)
		x.claim(j)
		x.transfer(j)
		time.Sleep(time.Second)
		x.broker.Stop()
		select {
		case <-x.s.Done():
		case <-time.After(5 * time.Minute):
			t.Errorf("the worker has not stopped; epoch %d", x.s.Peer().Epoch)
		}
		if err := x.s.Err(); err == nil || !strings.Contains(err.Error(), "the device has not answered") {
			t.Errorf("stopped with %v", err)
		}
		close(free)
	})
}
