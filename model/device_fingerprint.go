package model

import (
	"crypto/sha256"
	"fmt"
	"hash"

	"quire/device"
)

// layoutFingerprint binds the order and size of a frame's bytes: equal ones can exchange pages whatever their page sizes.
func layoutFingerprint(s device.PoolSpec) [32]byte {
	h := sha256.New()
	fmt.Fprintf(h, "quire layout 1: layers %d, kv heads %d of %d, %s, [layers][rows][k, v][heads][numbers]", s.Layers, s.KVHeads, s.HeadDim, s.Type)
	return sum(h)
}

// computeFingerprint binds everything on which a result's bits depend beside the model: backend, variant and version of the
// kernels, architecture, types of keys, values and activations, and what a fixed probe gives.
func computeFingerprint(dev device.Device, kv device.Type) ([32]byte, error) {
	i := dev.Info()
	bits, err := device.Probe(dev, kv)
	if err != nil {
		return [32]byte{}, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "quire compute 1: %s %s %d %s, kv %s, activations %s\n", i.Backend, i.Variant, i.Version, i.Arch, kv, i.Activations)
	h.Write(bits)
	return sum(h), nil
}

func sum(h hash.Hash) (out [32]byte) {
	h.Sum(out[:0])
	return out
}
