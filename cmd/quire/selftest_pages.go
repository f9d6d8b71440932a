package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pages that were taken for a request and never came back are a leak too: of memory, and of what was in them. So the test looks at each
// worker's pool before its first request and after its last one.

// settleEvery is how often they are looked at until they have come back. The router's figures are of the last heartbeats, which come
// every 300 ms: those of the first moment may be from before the last requests, and acquit nobody.
const (
	settleEvery = 250 * time.Millisecond
	freshAfter  = time.Second
)

// pool is a worker's pages that are not free, and all.
type pool struct{ used, all int }

// pools are those of every worker that the router sees, by "decode d1", and how many requests it has open, anybody's.
type pools struct {
	workers map[string]pool
	open    int
}

var (
	pagesLine = regexp.MustCompile(`(?m)^quire_pages\{role="([^"]*)",id="([^"]*)",state="([^"]*)"\} (\d+)$`)
	openLine  = regexp.MustCompile(`(?m)^quire_requests_(?:running|prefilling|waiting) (\d+)$`)
)

// pools reads the router's metrics.
func (t *leakTest) pools(ctx context.Context) (pools, error) {
	resp, err := t.look.send(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return pools{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return pools{}, err
	}
	p := pools{workers: map[string]pool{}}
	for _, m := range pagesLine.FindAllStringSubmatch(string(b), -1) {
		n, err := strconv.Atoi(m[4])
		if err != nil {
			return pools{}, err
		}
		w := p.workers[m[1]+" "+m[2]]
		if w.all += n; m[3] != "free" {
			w.used += n
		}
		p.workers[m[1]+" "+m[2]] = w
	}
	for _, m := range openLine.FindAllStringSubmatch(string(b), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return pools{}, err
		}
		p.open += n
	}
	return p, nil
}

// more names the workers that hold more pages than before, or have another number of them. Workers that came or went cannot be compared.
func (p pools) more(before pools) (found []string) {
	for _, name := range slices.Sorted(maps.Keys(before.workers)) {
		was, now := before.workers[name], p.workers[name]
		switch {
		case now == pool{}:
		case now.all != was.all:
			found = append(found, fmt.Sprintf("%s counts %d pages, %d before", name, now.all, was.all))
		case now.used > was.used:
			found = append(found, fmt.Sprintf("%s has %d of %d pages in use, %d before", name, now.used, now.all, was.used))
		}
	}
	return found
}

// settle waits until every worker has as many free pages as before the test. What does not come back although the router has no request
// open is a finding; while others use the cluster it cannot be told.
func (t *leakTest) settle(ctx context.Context) error {
	if len(t.before.workers) == 0 {
		t.pagesText = "page counts not compared: /metrics has none"
		return nil
	}
	for began := time.Now(); ; {
		now, err := t.pools(ctx)
		if err != nil {
			return err
		}
		held := now.more(t.before)
		switch {
		case len(held) == 0 && time.Since(began) >= freshAfter:
			t.pagesText = fmt.Sprintf("pages of %d workers: as many free as before", len(now.workers))
			return nil
		case time.Since(began) < max(t.patience, freshAfter):
		case now.open > 0:
			t.pagesText = fmt.Sprintf("page counts not judged: %d requests of others are open, and %s", now.open, strings.Join(held, ", "))
			return nil
		default:
			for _, h := range held {
				t.find("pages that do not come back: %s", h)
			}
			return nil
		}
		select {
		case <-time.After(settleEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
