package model

import (
	"quire/device"
	"quire/kvtransfer"
)

// choice is what a device that picks is asked for: the tokens of those rows of logits whose pickers are plain.
type choice struct {
	how   []device.Sampling // of each row of logits
	plain []bool            // of each: the device chooses
	ids   []int32           // what it chose; -1: the host must
}

// choose asks the device for what it can choose.
func (o *outputs) choose(work []Work) {
	for i := range work {
		if work[i].Pick == nil {
			continue
		}
		how, ok := work[i].Pick.plain()
		o.how, o.plain, o.ids = append(o.how, how), append(o.plain, ok), append(o.ids, -1)
	}
}

// chosen is the token that the device chose from a row of logits; ok is false where the host has to.
func (c *choice) chosen(row int) (t kvtransfer.Token, ok bool) {
	if len(c.how) == 0 || !c.plain[row] || c.ids[row] < 0 {
		return t, false
	}
	return kvtransfer.Token{ID: c.ids[row]}, true
}

// choices is the ops that end a row of logits: the device's choice, and the way to the host of rows that the host chooses from.
func (f *forward) choices(o *outputs) []device.Op {
	var ops []device.Op
	if len(o.how) > 0 {
		ops = append(ops, device.Pick{Logits: f.logits, How: o.how, To: o.ids})
	}
	if d := f.download(o, func(i int) bool { return len(o.how) == 0 || !o.plain[i] }); len(d.Rows) > 0 {
		ops = append(ops, d)
	}
	return ops
}

// download brings some rows of logits to the host.
func (f *forward) download(o *outputs, which func(row int) bool) device.Download {
	d := device.Download{From: f.logits}
	for i, to := range o.logits {
		if which(i) {
			d.Rows, d.To = append(d.Rows, i), append(d.To, to)
		}
	}
	return d
}

// fetchLeft brings the rows to the host that the device was asked for and did not choose from.
func (e *deviceEngine) fetchLeft(o *outputs) error {
	d := e.fwd.download(o, func(i int) bool { return len(o.how) > 0 && o.plain[i] && o.ids[i] < 0 })
	if len(d.Rows) == 0 {
		return nil
	}
	b := &device.Batch{Tokens: make([]int32, 1), Seqs: []device.Seq{{Rows: 1}}}
	return e.w.dev.Run(&device.Step{Batch: b, Ops: []device.Op{d}})
}
