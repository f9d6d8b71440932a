package trace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of an exporter.
const (
	queued    = 4096 // spans that wait; more are dropped and counted
	batch     = 512  // spans of one request
	tries     = 4    // of one batch, while the collector says that it is busy
	firstWait = 500 * time.Millisecond
)

// Exporter sends spans to a collector: OTLP over HTTP, in JSON. It never makes a service wait.
type Exporter struct {
	settings
	version string
	log     *slog.Logger
	client  *http.Client
	spans   chan *Span
	dropped atomic.Uint64
	failing bool // send's alone
	flush   chan chan struct{}
	stop    chan struct{}
	ended   chan struct{}
	once    sync.Once
}

func newExporter(s settings, version string, log *slog.Logger) *Exporter {
	e := &Exporter{settings: s, version: version, log: log, client: &http.Client{Timeout: s.timeout, Transport: http.DefaultTransport.(*http.Transport).Clone()}, spans: make(chan *Span, queued),
		flush: make(chan chan struct{}), stop: make(chan struct{}), ended: make(chan struct{})}
	go e.run()
	return e
}

// Dropped is how many spans found no room or were refused.
func (e *Exporter) Dropped() uint64 { return e.dropped.Load() }

// take puts a span that has ended on its way.
func (e *Exporter) take(s *Span) {
	select {
	case e.spans <- s:
	default:
		e.dropped.Add(1)
	}
}

// run gathers spans and sends them, at the latest after the delay.
func (e *Exporter) run() {
	defer close(e.ended)
	defer e.client.CloseIdleConnections()
	every := time.NewTicker(e.delay)
	defer every.Stop()
	var list []*Span
	send := func() {
		for len(list) > 0 {
			n := min(len(list), batch)
			e.send(list[:n])
			list = list[n:]
		}
		list = nil
	}
	gather := func() {
		for {
			select {
			case s := <-e.spans:
				list = append(list, s)
			default:
				return
			}
		}
	}
	for {
		select {
		case s := <-e.spans:
			if list = append(list, s); len(list) >= batch {
				send()
			}
		case <-every.C:
			send()
		case done := <-e.flush:
			gather()
			send()
			close(done)
		case <-e.stop:
			gather()
			send()
			return
		}
	}
}

// Flush sends what has ended so far.
func (e *Exporter) Flush(ctx context.Context) {
	done := make(chan struct{})
	select {
	case e.flush <- done:
		select {
		case <-done:
		case <-ctx.Done():
		}
	case <-e.ended:
	case <-ctx.Done():
	}
}

// Close sends what is left and ends. A nil exporter has nothing to end.
func (e *Exporter) Close(ctx context.Context) error {
	if e == nil {
		return nil
	}
	e.once.Do(func() { close(e.stop) })
	select {
	case <-e.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("trace: %d spans not sent: %w", len(e.spans), ctx.Err())
	}
}

// send delivers one batch. The first failure of a row is logged.
func (e *Exporter) send(list []*Span) {
	body, err := encode(list, e.version, e.resource)
	if err == nil {
		err = e.deliver(body)
	}
	if err != nil {
		e.dropped.Add(uint64(len(list)))
		if !e.failing {
			e.log.Warn("traces are not taken", "endpoint", e.endpoint, "error", err)
		}
	} else if e.failing {
		e.log.Info("traces are taken again", "dropped", e.dropped.Load())
	}
	e.failing = err != nil
}

// deliver posts a body, and again while the collector says that it is busy; not while the exporter closes.
func (e *Exporter) deliver(body []byte) error {
	wait := firstWait
	for try := 1; ; try++ {
		again, err := e.post(body)
		if err == nil || !again || try == tries {
			return err
		}
		select {
		case <-time.After(wait):
		case <-e.stop:
			return err
		}
		wait *= 2
	}
}

// post sends one body; again says whether the collector may take it later.
func (e *Exporter) post(body []byte) (again bool, err error) {
	req, err := http.NewRequest(http.MethodPost, e.endpoint, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	for k, v := range e.headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	switch {
	case resp.StatusCode < 300:
		return false, nil
	case resp.StatusCode == 429 || resp.StatusCode == 502 || resp.StatusCode == 503 || resp.StatusCode == 504:
		return true, fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	return false, fmt.Errorf("HTTP %d", resp.StatusCode)
}
