package cluster

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"

	"quire/device"
	"quire/device/cpu"
	"quire/device/open"
	_ "quire/embedded" // the model that an empty path opens
	"quire/kvtransfer"
	"quire/model"
	"quire/prefill"
)

// loaded is a model on the device of this process.
type loaded struct {
	src     *model.Source
	dev     device.Device
	weights *model.Weights
}

// load opens the model and packs its weights for the device: one device and one copy of the weights for all workers here.
func (c *Cluster) load() (*loaded, error) {
	m := c.o.Model
	src, err := model.Open(m.Path, model.OpenOptions{Progress: c.o.progress("read model"), Name: m.Name})
	if err != nil {
		return nil, err
	}
	c.add("model", func(context.Context) error { return src.Close() })
	dev, note, err := open.Device(open.Options{Device: c.o.Pool.Device, CPU: c.o.Pool.device()})
	if err != nil {
		return nil, err
	}
	if note != "" {
		c.o.Log.Warn(note)
	}
	c.add("device", func(context.Context) error { return dev.Close() })
	w, err := model.LoadWeights(dev, src, c.o.progress("load weights"))
	if err != nil {
		return nil, err
	}
	c.describe(src)
	i := dev.Info()
	c.info.Device = fmt.Sprintf("%s: %s", i.Backend, i.Variant)
	if i.Threads > 0 {
		c.info.Device += fmt.Sprintf(", %d threads", i.Threads)
	}
	return &loaded{src, dev, w}, nil
}

// memory is how many bytes weights and pages have.
func (l *loaded) memory() int64 {
	if m := device.OwnMemory(l.dev); m > 0 {
		return m
	}
	return memory()
}

// device gives the options of the CPU device.
func (o PoolOptions) device() cpu.Options {
	return cpu.Options{Threads: o.Threads, Variant: o.Variant, Activations: o.Activations}
}

// describe notes what is served.
func (c *Cluster) describe(src *model.Source) {
	c.info.Model = ModelInfo{Name: src.Name, BuiltIn: src.Path == "", Bytes: src.Bytes, Context: src.Config.Context}
}

// pools counts the page pools of this process: each has its own number, so that no view or grant of one is good for another.
var pools atomic.Uint64

// engine makes a worker's engine over a pool of its own.
func (l *loaded) engine(o Options, w worker) (model.Engine, uint64, error) {
	kv, err := device.KVType(o.Model.KVType)
	if err != nil {
		return nil, 0, err
	}
	pool := pools.Add(1)
	eo := model.EngineOptions{Pages: w.pages, PageSize: o.Pool.PageSize, KVType: kv, Pool: pool}
	if device.OwnMemory(l.dev) > 0 { // then it is made at the start, not in the middle of somebody's request
		eo.Rows, eo.Chosen = o.Pool.largestStep(w.role)
	}
	e, err := model.NewEngine(l.dev, l.weights, eo)
	return e, pool, err
}

// usualOpen is how many hand-offs decode has at once when nobody says.
const usualOpen = 64

// largestStep is how many rows a worker's steps have at most, a witness's too, and how many tokens they choose.
func (o PoolOptions) largestStep(role kvtransfer.Role) (rows, chosen int) {
	open := cmp.Or(o.Running, usualOpen)
	if role == kvtransfer.RolePrefill {
		return max(model.WitnessChunk, cmp.Or(o.Chunk, prefill.DefaultChunk)), 0
	}
	return max(model.WitnessChunk, open), open
}

// rowBytes is what one token's keys and values take in all layers.
func (l *loaded) rowBytes(o Options) int {
	kv, err := device.KVType(o.Model.KVType)
	if err != nil {
		kv = device.F16 // engine refuses what is no type
	}
	return l.src.Config.RowBytes(kv)
}

// slug names a model in subjects: its name as far as it fits, and its fingerprint, so that two files of one name never meet.
func slug(name string, fingerprint [32]byte) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == 23 {
			break
		}
	}
	head := strings.Trim(b.String(), "-")
	if head == "" {
		head = "model"
	}
	return head + "-" + hex.EncodeToString(fingerprint[:4])
}
