package console

import (
	"encoding/json"
	"net/http"
	"time"

	"quire/kvtransfer"
)

// feed sends the series once and then a state twice a second, until the page has gone or the console closes.
func (c *Console) feed(w http.ResponseWriter, r *http.Request) {
	defer c.viewers.Add(-1)
	if n := c.viewers.Add(1); n > MaxViewers {
		fail(w, kvtransfer.Errorf(kvtransfer.Overloaded, "console: %d pages look already, at most %d may", n-1, MaxViewers))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	rc := http.NewResponseController(w)
	send := func(event string, v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		_ = rc.SetWriteDeadline(time.Now().Add(writeWithin)) // a test's recorder cannot
		if _, err := w.Write([]byte("event: " + event + "\ndata: " + string(b) + "\n\n")); err != nil {
			return err
		}
		return rc.Flush()
	}
	if send("series", c.series.all()) != nil {
		return
	}
	every := time.NewTicker(feedEvery)
	defer every.Stop()
	for {
		if c.admit(r) != nil || send("state", c.view(r.Context())) != nil { // a ticket ends
			return
		}
		select {
		case <-every.C:
		case <-r.Context().Done():
			return
		case <-c.ctx.Done():
			return
		}
	}
}
