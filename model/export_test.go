package model

import "quire/device"

// StepLogits is Step with the logits of every row of the batch from row from on, for comparison with reference outputs.
func StepLogits(eng Engine, work []Work, from int) ([][]float32, error) {
	e := eng.(*deviceEngine)
	e.mu.Lock()
	defer e.mu.Unlock()
	b, err := e.batch(work)
	if err != nil {
		return nil, err
	}
	o := &outputs{}
	for i := from; i < len(b.Tokens); i++ {
		o.logitRows = append(o.logitRows, i)
		o.logits = append(o.logits, make([]float32, e.info.Vocab))
	}
	if err := e.fwd.fit(len(b.Tokens), len(o.logitRows)); err != nil {
		return nil, err
	}
	ops := append(e.fwd.body[:len(e.fwd.body):len(e.fwd.body)], e.fwd.tail(o)...)
	return o.logits, e.w.dev.Run(&device.Step{Batch: b, Ops: ops})
}
