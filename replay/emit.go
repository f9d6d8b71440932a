package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quire/journal"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/script"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/tape"
)

// Script makes a test script for kvtransfer/testdata/recorded of an attempt: every message that reached decode's machine, and what
// this build's machine answers. With what the tape has of the attempt its frames are those that came; without, frames are made
// that fill the rows that the journal says were filled, in as many pieces. The tenant is not named.
func (p *Past) Script(a *Attempt, taped *tape.Attempt) (string, error) {
	if a.Reserved == nil {
		return "", fmt.Errorf("replay: script of %s: no decode reserved pages for it", a.Key)
	}
	w := &writer{a: a, taped: taped, now: a.Reserved.At}
	if err := w.messages(); err != nil {
		return "", fmt.Errorf("replay: script of %s: %w", a.Key, err)
	}
	body := strings.Join(w.lines, "\n")
	played, err := script.Play(body)
	if err != nil {
		return "", fmt.Errorf("replay: %w", err)
	}
	from := "frames made to fill the rows that were filled"
	if taped != nil {
		from = "frames as they came"
	}
	return fmt.Sprintf("# A hand-off as it was recorded: records %d to %d of the journal; %s.\n# The record says: %s.\nplay\n%s\n----\n%s",
		a.Events[0].Sequence, a.Events[len(a.Events)-1].Sequence, from, a.said(), body, played), nil
}

// said is what the record says of gate, witness and end.
func (a *Attempt) said() string {
	var out []string
	if a.Verdict != nil {
		v := a.Verdict.Facts.(journal.Verdict)
		out = append(out, "gate "+cmp.Or(v.Check, "ok"))
	}
	if a.Witness != nil {
		out = append(out, "witness "+a.Witness.Facts.(journal.Witness).Result)
	}
	if a.Finished != nil {
		f := a.Finished.Facts.(journal.Finished)
		out = append(out, "end "+f.Finish+f.Code)
	}
	return cmp.Or(strings.Join(out, ", "), "nothing of its end")
}

// writer writes the lines of a script.
type writer struct {
	a     *Attempt
	taped *tape.Attempt
	now   kvtransfer.Tick
	ticks kvtransfer.Tick // when the lease was restarted last
	lines []string
}

func (w *writer) line(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// at moves the clock. Progress restarts a lease and is not recorded: where the lease would have ended, some must have come.
func (w *writer) at(t kvtransfer.Tick) {
	lease := kvtransfer.Tick(w.a.Reserved.Facts.(journal.Reserved).LeaseMicros)
	for w.ticks > 0 && t-w.ticks >= lease && lease > 1 {
		w.ticks += lease - 1
		w.line("# The lease lived on: prefill told of its progress.\nat %d\nprogress", w.ticks)
	}
	if t > w.now {
		w.now = t
		w.line("at %d", t)
	}
}

const (
	madeRowBytes = 16 // of frames that are made
	madeDim      = 4
	farDeadline  = 3600 * kvtransfer.Second
	maxMade      = 4096 // frames that are made
)

func (w *writer) messages() error {
	a := w.a
	r := a.Reserved.Facts.(journal.Reserved)
	shape := kvtransfer.CutShape{Layers: 1, RowBytes: madeRowBytes, Dim: madeDim}
	if s := a.Reserved.Life.Started; s != nil && s.Layers > 0 {
		shape.Layers = s.Layers
	}
	deadline := w.now + farDeadline
	if w.taped != nil {
		shape, deadline, w.now = w.taped.Head.Shape, w.taped.Head.Deadline, w.taped.Head.LeaseStart
	}
	w.line("at %d", w.now)
	w.line("reservation attempt=%s decode=%s/%s@%d tenant=t n=%d c=%d max=%d page-size=%d pages=%s lease=%d deadline=%d hash=%s layers=%d row-bytes=%d dim=%d",
		a.Key, a.Reserved.Life.Role, a.Reserved.Life.ID, a.Reserved.Life.Epoch, r.N, r.C, r.MaxTokens, r.PageSize, slots(r.Pages), r.LeaseMicros, deadline,
		r.Reservation, shape.Layers, shape.RowBytes, shape.Dim)
	if a.Claimed == nil {
		w.ending()
		return nil
	}
	c := a.Claimed.Facts.(journal.Claimed)
	if _, err := script.ParsePeer(c.Prefill); err != nil {
		return err
	}
	w.at(a.Claimed.At)
	w.ticks = max(w.now, 1)
	w.line("claim by=%s id=%s", c.Prefill, c.Claim)
	if a.Verdict != nil {
		if v := a.Verdict.Facts.(journal.Verdict); v.Path == "local" {
			return errors.New("decode computed its rows itself: nothing was handed off")
		} else if !slices.Equal(v.Pages, r.Pages) {
			w.line("owns pages=%s", slots(v.Pages))
		}
	}
	var err error
	if w.taped != nil {
		err = w.recorded()
	} else {
		err = w.made(r, c, shape)
	}
	if err != nil {
		return err
	}
	w.witness()
	w.ending()
	return nil
}

func slots(ps journal.Pages) string {
	out := make([]page.Slot, len(ps))
	for i, s := range ps {
		out[i] = page.Slot{Page: page.ID(s[0]), Gen: page.Gen(s[1])}
	}
	return script.Pages(out)
}

// recorded writes the frames and manifests that came.
func (w *writer) recorded() error {
	in, err := inbound(*w.taped)
	if err != nil {
		return err
	}
	var key [32]byte
	copy(key[:], w.taped.Head.FrameKey)
	for _, p := range w.taped.Parts {
		w.at(p.At)
		if p.Frame == nil {
			m, err := wire.Decode[kvtransfer.Manifest](p.Manifest.Body)
			if err != nil {
				return err
			}
			w.line("manifest by=%s n=%d c=%d sent=%d pages=%d frames=%d digest=%x%s", p.Manifest.From, m.N, m.C, m.Sent, m.Pages, m.Frames, m.Digest, others(m, in))
			continue
		}
		f, err := wire.DecodeFrame(p.Frame)
		if err != nil {
			return err
		}
		opens := ""
		if _, err := seal.OpenFrame(key, in.Hash, f.Header, f.Sealed, nil); err != nil {
			opens = " opens=false"
		}
		w.frame(f.Header, seal.Tag(f.Sealed), opens)
	}
	return nil
}

// others is what a manifest says other than the hand-off's own names.
func others(m kvtransfer.Manifest, in *kvtransfer.Inbound) string {
	s := ""
	if m.Tenant != in.Reservation.Tenant {
		s += " tenant=another"
	}
	if m.Key != in.Key() {
		s += " attempt=" + m.Key.String()
	}
	if m.Claim != in.Claimed.Claim {
		s += fmt.Sprintf(" claim=%x", m.Claim[:])
	}
	if m.Reservation != in.Hash {
		s += fmt.Sprintf(" reservation=%x", m.Reservation)
	}
	return s
}

func (w *writer) frame(h kvtransfer.FrameHeader, tag [16]byte, more string) {
	w.ticks = max(w.now, 1)
	hidden := ""
	if h.Hidden > 0 {
		hidden = fmt.Sprintf(" hidden=%d", h.Hidden)
	}
	w.line("frame index=%d layers=%d-%d rows=%d-%d%s tag=%x%s", h.Index, h.LayerFrom, h.LayerTo, h.RowFrom, h.RowTo, hidden, tag, more)
}

// made writes frames that fill what was filled, and the manifest that the verdict tells of.
func (w *writer) made(r journal.Reserved, c journal.Claimed, shape kvtransfer.CutShape) error {
	if w.a.Verdict == nil {
		return nil // what came until then is not recorded without a verdict
	}
	v := w.a.Verdict.Facts.(journal.Verdict)
	pieces, err := cover(v.Written, v.Frames, shape.Layers)
	if err != nil {
		return err
	}
	w.at(kvtransfer.Tick(v.FirstMicros))
	for i, h := range pieces {
		h.Index = uint32(i)
		if i == len(pieces)-1 {
			h.Hidden = shape.Dim
		}
		w.frame(h, [16]byte{0: 0xf0, 14: byte(i >> 8), 15: byte(i)}, "")
	}
	if v.ManifestMicros == 0 {
		return nil
	}
	w.at(kvtransfer.Tick(v.ManifestMicros))
	n, sent, frames, digest := v.N, v.Sent, v.Frames, "tags"
	switch v.Check {
	case "token count":
		_, _ = fmt.Sscanf(v.Detail, "token count: reserved %d, manifest %d", new(int), &n)
	case "frame count":
		frames++
	case "digest":
		digest = strings.Repeat("0", 64)
	}
	w.line("manifest by=%s n=%d c=%d sent=%d pages=%d frames=%d digest=%s", c.Prefill, n, v.C, sent, kvtransfer.PagesFor(n, max(1, r.PageSize)), frames, digest)
	return nil
}

// cover cuts spans of rows, in all layers, into a number of frames: rows first, then layers.
func cover(spans journal.Spans, frames, layers int) ([]kvtransfer.FrameHeader, error) {
	if frames < len(spans) || frames > maxMade || frames > 0 && len(spans) == 0 {
		return nil, fmt.Errorf("%d frames that filled %v in every layer: only the tape knows how they lay (limit %d)", frames, spans, maxMade)
	}
	var out []kvtransfer.FrameHeader
	for _, s := range spans {
		out = append(out, kvtransfer.FrameHeader{LayerTo: layers, RowFrom: s[0], RowTo: s[1]})
	}
	rows := func(h kvtransfer.FrameHeader) int { return h.RowTo - h.RowFrom }
	for len(out) < frames {
		i := 0
		for j := range out {
			if rows(out[j]) > rows(out[i]) || rows(out[j]) == rows(out[i]) && out[j].LayerTo-out[j].LayerFrom > out[i].LayerTo-out[i].LayerFrom {
				i = j
			}
		}
		h := out[i]
		a, b := h, h
		switch {
		case rows(h) > 1:
			a.RowTo = h.RowFrom + rows(h)/2
			b.RowFrom = a.RowTo
		case h.LayerTo-h.LayerFrom > 1:
			a.LayerTo = (h.LayerFrom + h.LayerTo) / 2
			b.LayerFrom = a.LayerTo
		default:
			return nil, fmt.Errorf("%d frames for %d rows of %d layers", frames, spans.Rows(), layers)
		}
		out = slices.Replace(out, i, i+1, a, b)
	}
	return out, nil
}

// witness writes the journal's acknowledgement and what the witness found.
func (w *writer) witness() {
	if w.a.Verdict == nil || w.a.Witness == nil {
		return
	}
	x := w.a.Witness.Facts.(journal.Witness)
	w.at(kvtransfer.Tick(x.OwnedMicros))
	w.line("journaled")
	var row, of int
	var part string
	if n, _ := fmt.Sscanf(x.Detail, "witness: layer 0 differs from the prompt at row %d of %d", &row, &of); n == 2 {
		w.line("rows differ=%d", row)
		return
	}
	w.line("rows")
	if _, found, ok := strings.Cut(x.Detail, " differs in "); ok {
		part = found
	}
	w.at(w.a.Witness.At)
	if part != "" {
		w.line("last detail=%s", part)
		return
	}
	w.line("last")
}

func (w *writer) ending() {
	if w.a.Finished == nil {
		return
	}
	f := w.a.Finished.Facts.(journal.Finished)
	w.at(w.a.Finished.At)
	if f.Code == "" {
		w.line("finish")
		return
	}
	detail := strings.ReplaceAll(f.Detail, "\n", " ")
	if strings.HasPrefix(detail, "tenant") {
		detail = "tenant" // names stay where they are
	}
	w.line("end code=%s detail=%s", f.Code, detail)
}
