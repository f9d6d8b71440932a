package sim

import (
	"errors"
	"slices"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
	"quire/model/modeltest"
)

// device is one process's engine: the fake one, whose tokens are a function of the exact bytes of the pages, with operations
// that take time and may fail. Every access passes the shadow, which knows by itself who wrote what.
type device struct {
	w      *World
	p      *proc
	e      *modeltest.Engine
	info   model.Info
	shadow *shadow
	lo, hi Time     // how long an operation takes
	hangs  bool     // the next one does not answer for long
	busy   int      // operations under way
	out    []*timer // those of them that are to answer yet
}

var errDevice = errors.New("sim: device failed")

func newDevice(p *proc, o modeltest.Options, strange bool) *device {
	d := &device{w: p.w, p: p, lo: 50, hi: p.w.plan.DeviceMax}
	o.Fail = func(op string) error {
		if d.w.dice.chance(d.w.deviceFail) {
			d.w.cov.mark("fault: device " + op)
			return errDevice
		}
		return nil
	}
	d.e = modeltest.NewEngine(o)
	d.info = d.e.Info()
	if strange {
		d.info.Fingerprints.Compute[31]++
	}
	d.shadow = newShadow(p.w, string(p.n.role), d.info)
	return d
}

// do lets an operation take its time: op happens somewhere in it, then is told at its end.
func (d *device) do(op, then func()) {
	hi := d.hi
	if d.w.dice.chance(d.w.straggle) {
		d.w.cov.mark("fault: device slow")
		hi = d.w.lease() / 6
	}
	took := d.w.dice.between(0, hi)
	if d.hangs && !d.w.healed {
		d.hangs = false
		d.w.cov.mark("fault: device of a " + string(d.p.n.role) + " hangs")
		took = d.w.dice.between(d.w.lease()/3, 5*d.w.lease()) // after three leases it is too late
	}
	d.busy++
	var out *timer
	end := func() {
		d.busy--
		d.out = slices.DeleteFunc(d.out, func(t *timer) bool { return t == out })
		then()
	}
	d.p.after(d.w.dice.between(d.lo, hi), func() {
		op()
		if d.w.healed {
			took = min(took, d.hi)
		}
		out = d.p.after(took, end)
		d.out = append(d.out, out)
	})
}

// mend has what hangs answer now.
func (d *device) mend() {
	d.hangs = false
	for _, t := range d.out {
		if fn := t.fn; fn != nil {
			t.stop()
			d.p.after(0, fn)
		}
	}
}

// rest says when nothing is under way any more, or that it did not come to that within a while.
func (d *device) rest(most Time, then func(ok bool)) {
	if d.busy > 0 && most > 0 {
		d.p.after(5*ms, func() { d.rest(most-5*ms, then) })
		return
	}
	then(d.busy == 0)
}

// step runs a batch. keys name the owner of each work as the loop does.
func (d *device) step(keys []kvtransfer.Key, work []model.Work) ([]model.Result, error) {
	res, err := d.e.Step(work)
	if err != nil {
		return res, err
	}
	for i, w := range work {
		read := w.From
		if w.Witness {
			read++
		}
		r := model.Range{LayerTo: d.info.Layers, RowTo: read}
		d.shadow.read(d.p, keys[i], w.View, r)
		if !w.Witness {
			r.RowFrom, r.RowTo = w.From, w.From+len(w.Tokens)
			d.shadow.write(d.p, keys[i], w.Grant, r)
		}
	}
	return res, nil
}

func (d *device) read(k kvtransfer.Key, v page.View, r model.Range) ([]byte, error) {
	b, err := d.e.Read(v, r, nil)
	if err == nil {
		d.shadow.read(d.p, k, v, r)
	}
	return b, err
}

func (d *device) write(k kvtransfer.Key, g page.Grant, r model.Range, src []byte) error {
	err := d.e.Write(g, r, src)
	if err == nil {
		d.shadow.write(d.p, k, g, r)
	}
	return err
}

func (d *device) witness(k kvtransfer.Key, v page.View, tokens []int32, from int) (int, error) {
	row, err := d.e.WitnessRows(v, tokens, from)
	if err == nil {
		d.shadow.read(d.p, k, v, model.Range{LayerTo: 1, RowFrom: from, RowTo: from + len(tokens)})
	}
	return row, err
}

func (d *device) zero(pages []page.ID) error {
	var err error
	if d.w.plant != plantSkipZero {
		err = d.e.Zero(pages)
	}
	if err == nil {
		d.shadow.zero(pages)
	}
	return err
}

func (d *device) allPages() []page.ID {
	ids := make([]page.ID, d.info.Pages)
	for i := range ids {
		ids[i] = page.ID(i)
	}
	return ids
}
