package cpu

import (
	"testing"

	"quire/device"
	"quire/device/devicetest"
)

func TestConformance(t *testing.T) {
	for i, k := range variants() {
		for _, acts := range []string{"int8", "f32"} {
			if acts == "f32" && i > 0 && k != portable {
				continue // what F32 activations go through is the same in the variants between
			}
			t.Run(k.name+"/"+acts, func(t *testing.T) {
				devicetest.Run(t, func(t *testing.T) device.Device {
					d, err := New(Options{Variant: k.name, Activations: acts, Threads: 3})
					if err != nil {
						t.Fatal(err)
					}
					return d
				})
			})
		}
	}
}
