package cluster

import (
	"fmt"
	"strings"

	"quire/device/cuda"
	"quire/device/open"
)

// gpu looks at what --device asks for: the CUDA driver, its devices and their memory.
func (c *check) gpu() {
	want := c.o.Pool.Device
	if err := open.Check(want); err != nil {
		c.bad(Fail, "gpu", "", "%v", err)
		return
	}
	named := strings.HasPrefix(want, "cuda")
	drv, err := cuda.Find()
	switch {
	case err != nil && named:
		c.bad(Fail, "gpu", "--device auto computes on the CPU then", "--device %s: %v", want, err)
		return
	case err != nil && !cuda.Built:
		c.fine("gpu", "not used: this binary was built without CUDA (docs/cuda.md)")
		return
	case err != nil:
		c.fine("gpu", "none: %v", err)
		return
	}
	for _, d := range drv.Devices {
		c.fine("gpu", "cuda:%d %s, compute capability %s, %.1f GB; driver of CUDA %d.%d", d.Ordinal, d.Name, d.Capability,
			float64(d.Memory)/1e9, drv.Version/1000, drv.Version%1000/10)
	}
	if want == "cpu" {
		c.fine("kernels", "--device cpu: the GPU stays unused")
		return
	}
	dev, note, err := open.Device(open.Options{Device: want, CPU: c.o.Pool.device()})
	if err != nil || note != "" {
		state, text := Warn, note
		if err != nil {
			state, text = Fail, err.Error()
		}
		c.bad(state, "kernels", "", "%s", text)
		return
	}
	i := dev.Info()
	if err := dev.Close(); err != nil {
		c.bad(Fail, "kernels", "", "%v", err)
		return
	}
	c.fine("kernels", "%s", fmt.Sprintf("%s: on ordinary cores alone; kernels for tensor cores are not in this build, and none has run on "+
		"hardware yet (make gpu-check)", i.Variant))
}
