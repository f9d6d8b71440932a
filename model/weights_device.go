package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"quire/device"
	"quire/model/tensor"
)

// Weights is a model's weights on a device, shared by the engines of a process. It lives as long as the device.
type Weights struct {
	Config      Config
	Fingerprint [32]byte // the source's: of weights and tokenizer
	Bytes       int64    // device memory of the matrices

	dev      device.Device
	embed    device.Matrix // [Vocab, Dim]
	output   device.Matrix // [Vocab, Dim]; embed itself when tied
	norm     device.Buffer // [1, Dim]
	sin, cos device.Buffer // [Context, Rope.Dims/2], times the rope's factor
	layers   []layerWeights
}

// layerWeights is one layer's.
type layerWeights struct {
	attnNorm, ffnNorm device.Buffer // [1, Dim]
	q                 device.Matrix // [Heads*HeadDim, Dim]
	k, v              device.Matrix // [KVHeads*HeadDim, Dim]
	o                 device.Matrix // [Dim, Heads*HeadDim]
	gate, up          device.Matrix // [FFN, Dim]
	down              device.Matrix // [Dim, FFN]
	bias              device.Triple // each [1, rows of its matrix]; nil without Config.Bias
	normQ, normK      device.Buffer // [1, HeadDim]; nil without Config.HeadNorm
}

// LoadWeights packs the weights of a source for a device. progress is told how many of total bytes are done; it may be nil. The
// source may be closed afterwards.
func LoadWeights(dev device.Device, src *Source, progress func(done, total int64)) (*Weights, error) {
	l := loader{dev: dev, src: src, progress: progress}
	for _, t := range src.Tensors {
		l.total += int64(len(t.Data))
	}
	w := &Weights{Config: src.Config, Fingerprint: src.Fingerprint, dev: dev, layers: make([]layerWeights, src.Config.Layers)}
	w.embed = l.matrix("token_embd.weight")
	for i := range w.layers {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", i, s) }
		w.layers[i] = layerWeights{
			attnNorm: l.vector(name("attn_norm")), ffnNorm: l.vector(name("ffn_norm")),
			q: l.matrix(name("attn_q")), k: l.matrix(name("attn_k")), v: l.matrix(name("attn_v")), o: l.matrix(name("attn_output")),
			gate: l.matrix(name("ffn_gate")), up: l.matrix(name("ffn_up")), down: l.matrix(name("ffn_down")),
		}
		l.heads(&w.layers[i], i)
	}
	w.norm = l.vector("output_norm.weight")
	w.output = w.embed
	if !w.Config.Tied {
		w.output = l.matrix("output.weight")
	}
	w.Bytes = l.bytes
	if l.err == nil {
		l.err = w.rope()
	}
	if l.err != nil {
		return nil, fmt.Errorf("model: load weights: %w", l.err)
	}
	if progress != nil {
		progress(l.total, l.total)
	}
	return w, nil
}

// loader puts tensors on a device one after another; its first error stays and ends the rest.
type loader struct {
	dev         device.Device
	src         *Source
	progress    func(done, total int64)
	done, total int64
	bytes       int64
	err         error
}

func (l *loader) tensor(name string) (Tensor, bool) {
	if l.err != nil {
		return Tensor{}, false
	}
	t, ok := l.src.Tensors[name]
	if !ok {
		l.err = fmt.Errorf("tensor %s is missing", name)
		return Tensor{}, false
	}
	l.done += int64(len(t.Data))
	if l.progress != nil {
		l.progress(l.done, l.total)
	}
	return t, true
}

func (l *loader) matrix(name string) device.Matrix {
	t, ok := l.tensor(name)
	if !ok {
		return nil
	}
	typ, err := deviceType(t.Type)
	if err == nil {
		var m device.Matrix
		if m, err = l.dev.Matrix(typ, t.Rows(), t.Cols(), t.Data); err == nil {
			l.bytes += int64(m.Bytes())
			return m
		}
	}
	l.err = fmt.Errorf("tensor %s: %w", name, err)
	return nil
}

// heads loads what an architecture adds to queries, keys and values.
func (l *loader) heads(w *layerWeights, layer int) {
	if l.src.Config.Bias {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s.bias", layer, s) }
		w.bias = device.Triple{Q: l.vector(name("attn_q")), K: l.vector(name("attn_k")), V: l.vector(name("attn_v"))}
	}
	if l.src.Config.HeadNorm {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", layer, s) }
		w.normQ, w.normK = l.vector(name("attn_q_norm")), l.vector(name("attn_k_norm"))
	}
}

func (l *loader) vector(name string) device.Buffer {
	t, ok := l.tensor(name)
	if !ok {
		return nil
	}
	b, err := upload(l.dev, widen(t), t.Cols())
	if err != nil {
		l.err = fmt.Errorf("tensor %s: %w", name, err)
	}
	return b
}

// rope makes the tables of sines and cosines.
func (w *Weights) rope() error {
	c := w.Config
	freqs, scale := c.Rope.Frequencies(c.Context)
	sin, cos := make([]float32, c.Context*len(freqs)), make([]float32, c.Context*len(freqs))
	for pos := range c.Context {
		for i, f := range freqs {
			s, co := math.Sincos(float64(pos) * f)
			sin[pos*len(freqs)+i], cos[pos*len(freqs)+i] = float32(s*scale), float32(co*scale)
		}
	}
	var err error
	if w.sin, err = upload(w.dev, sin, len(freqs)); err != nil {
		return err
	}
	w.cos, err = upload(w.dev, cos, len(freqs))
	return err
}

// upload makes a buffer of rows of cols numbers.
func upload(dev device.Device, data []float32, cols int) (device.Buffer, error) {
	b, err := dev.Buffer(len(data)/cols, cols)
	if err != nil {
		return nil, err
	}
	return b, dev.Upload(b, 0, data)
}

// widen gives the numbers of a tensor of a plain type.
func widen(t Tensor) []float32 {
	out := make([]float32, t.Rows()*t.Cols())
	for i := range out {
		switch t.Type {
		case tensor.F32:
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[i*4:]))
		case tensor.F16:
			out[i] = device.FromF16(binary.LittleEndian.Uint16(t.Data[i*2:]))
		case tensor.BF16:
			out[i] = device.FromBF16(binary.LittleEndian.Uint16(t.Data[i*2:]))
		}
	}
	return out
}

var deviceTypes = map[tensor.Type]device.Type{
	tensor.F32: device.F32, tensor.F16: device.F16, tensor.BF16: device.BF16, tensor.Q8_0: device.Q8_0, tensor.Q4_0: device.Q4_0,
	tensor.Q4_1: device.Q4_1, tensor.Q5_0: device.Q5_0, tensor.Q5_1: device.Q5_1, tensor.Q4_K: device.Q4_K, tensor.Q5_K: device.Q5_K,
	tensor.Q6_K: device.Q6_K,
}

func deviceType(t tensor.Type) (device.Type, error) {
	if d, ok := deviceTypes[t]; ok {
		return d, nil
	}
	return 0, fmt.Errorf("type %s has no place on a device", t)
}
