package router

import (
	"testing"

	"quire/kvtransfer"
)

// TestTapeTakesWhatItMay: the content of a request is handed on for taped tenants alone, once, and only when it ended well.
func TestTapeTakesWhatItMay(t *testing.T) {
	for _, c := range []struct {
		tenant string
		end    kvtransfer.End
		taped  bool
	}{
		{"taped", kvtransfer.End{Finish: kvtransfer.FinishStop}, true},
		{"other", kvtransfer.End{Finish: kvtransfer.FinishStop}, false},
		{"taped", kvtransfer.End{Error: kvtransfer.Errorf(kvtransfer.Cancelled, "decode: ended")}, false},
	} {
		w := newWorld(t, Policy{})
		w.l.cfg.Taped = map[string]bool{"taped": true}
		w.submit(c.tenant, 5, 3)
		key := w.place()
		w.do(Replied{Key: key, Number: 0, Body: good()})
		w.do(Replied{Key: key, Number: 1, Body: tokens(7)})
		w.do(Replied{Key: key, Number: 2, Body: tokens(9)})
		end := c.end
		end.Prompt, end.Output, end.Replies = 5, 2, 4
		w.do(Replied{Key: key, Number: 3, Body: kvtransfer.ReplyBody{End: &end}})
		if has[Tape](w.effects) != c.taped {
			t.Errorf("%s, %+v: %s", c.tenant, c.end, describe(w.effects))
			continue
		}
		if !c.taped {
			continue
		}
		if e := find1[Tape](w); e.ID != key.ID || len(e.Prompt) != 5 || len(e.Output) != 2 || e.Output[1] != 9 || e.Max != 3 || e.Sampling.Seed == 0 || e.Finish != kvtransfer.FinishStop {
			t.Errorf("%+v", e)
		}
	}
}
