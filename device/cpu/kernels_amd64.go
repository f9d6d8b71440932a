package cpu

func fastKernels() []*kernels { return nil }

// pause lets a spinning thread rest for so many turns.
func pause(n int) {
	for range n {
	}
}
