package cluster

import "fmt"

// How much a pool holds when nobody says: so many times the model's context, within a share of the machine's memory.
const (
	prefillContexts = 4
	decodeContexts  = 8
	prefillShare    = 8 // 1/8 of memory for all prefill pools of this process
	decodeShare     = 4
)

// sizing is what the size of a pool follows from.
type sizing struct {
	context     int   // tokens the model can take
	bytesPerRow int   // of all layers
	memory      int64 // bytes of the machine, 0 = unknown
	workers     int   // of this role in this process
}

// pages chooses the size of one pool. contexts is how many full contexts it should hold, share the part of memory it may take.
func (s sizing) pages(o PoolOptions, contexts, share int) int {
	if o.Pages > 0 {
		return o.Pages
	}
	rows := int64(contexts) * int64(s.context)
	if s.memory > 0 {
		rows = min(rows, s.memory/int64(share)/int64(max(s.workers, 1))/int64(max(s.bytesPerRow, 1)))
	}
	return int(max(1, rows/int64(o.PageSize)))
}

// limit finds how many tokens a request may take and what sets it. An explicit number that a pool or the model cannot hold is
// refused, with both numbers: a context that is advertised and does not fit is how answers get mixed up.
func limit(maxLen, context int, workers []WorkerInfo) (int, string, error) {
	n, by := context, "model context"
	for _, w := range workers {
		if t := w.Tokens(); t < n {
			n, by = t, fmt.Sprintf("%s pool of %s", w.Role, w.ID)
		}
	}
	switch {
	case maxLen == 0:
		return n, by, nil
	case maxLen <= n:
		if maxLen < n {
			by = "--max-model-len"
		}
		return maxLen, by, nil
	case maxLen > context:
		return 0, "", fmt.Errorf("cluster: --max-model-len %d: the model takes %d tokens; lower it, or say auto", maxLen, context)
	}
	for _, w := range workers {
		if t := w.Tokens(); maxLen > t {
			return 0, "", fmt.Errorf("cluster: --max-model-len %d: the %s pool of %s holds %d tokens (%d pages of %d); raise --kv-pages to %d, "+
				"lower --max-model-len, or say auto", maxLen, w.Role, w.ID, t, w.Pages, w.PageSize, (maxLen+w.PageSize-1)/w.PageSize)
		}
	}
	return n, by, nil
}
