package decode

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"sync"

	"quire/kvtransfer"
	"quire/kvtransfer/wire"
	"quire/model"
	"quire/tape"
)

// trace keeps what the tokens of a taped attempt were chosen from, until its end is recorded.
type trace struct {
	base int // output tokens of earlier attempts

	mu      sync.Mutex
	choices []tape.Choice // by output token of this attempt
	buf     []byte
}

// tape records a part. Nothing waits for it.
func (l *life) tape(e Tape) {
	p := tape.Part{Key: e.Key, Tenant: e.Tenant, Number: e.Number, At: e.At}
	switch {
	case e.Head != nil:
		h := e.Head
		p.Head = &tape.Head{Model: l.cfg.Model, Reservation: h.Reservation, Claim: h.Claim, Prefill: h.Prefill, FrameKey: h.FrameKey[:], Shape: h.Shape,
			Prompt: h.Prompt, Tokens: h.Tokens, Sampling: h.Sampling, LeaseStart: h.Lease.End - h.Lease.Duration, Deadline: h.Lease.Deadline}
		l.mu.Lock()
		l.traces[e.Key] = &trace{base: len(h.Tokens) - h.Prompt}
		l.mu.Unlock()
	case e.Frame != nil:
		p.Frame = wire.EncodeFrame(*e.Frame)
	case e.Manifest != nil:
		body, err := wire.Encode(e.Manifest)
		if err != nil {
			return // it was decoded a moment ago
		}
		p.Manifest = &tape.Manifest{From: e.From, Body: body}
	case e.End != nil:
		d := e.End
		p.End = &tape.End{Judged: d.Judged, OK: d.Verdict.OK, Check: d.Verdict.Check, Finish: d.Finish, Error: d.Error, Output: d.Output,
			Choices: l.takeTrace(e.Key, len(d.Output))}
	}
	l.cfg.Tape(p)
}

// takeTrace gives what at most n tokens were chosen from, and forgets it.
func (l *life) takeTrace(k kvtransfer.Key, n int) []tape.Choice {
	l.mu.Lock()
	t := l.traces[k]
	delete(l.traces, k)
	l.mu.Unlock()
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.choices[:min(n, len(t.choices))]
}

// watch has a taped attempt's picker tell what it chooses from. l.mu is held.
func (l *life) watch(k kvtransfer.Key, p *model.Picker) {
	t := l.traces[k]
	if t == nil || p == nil {
		return
	}
	p.Observe(func(index int, logits []float32, id int32) {
		t.mu.Lock()
		defer t.mu.Unlock()
		at := index - t.base
		if at < 0 || at > len(t.choices) {
			return
		}
		var c tape.Choice
		c, t.buf = Chosen(logits, id, t.buf)
		t.choices = append(t.choices[:at], c)
	})
}

// Chosen tells what a token was chosen from; buf is scratch, given back for the next call.
func Chosen(logits []float32, id int32, buf []byte) (tape.Choice, []byte) {
	buf = buf[:0]
	for _, v := range logits {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
	}
	sum := sha256.Sum256(buf)
	c := tape.Choice{Sum: binary.BigEndian.Uint64(sum[:])}
	if id >= 0 && int(id) < len(logits) {
		c.Bits = math.Float32bits(logits[id])
	}
	return c, buf
}
