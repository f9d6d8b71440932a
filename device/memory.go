package device

// OwnMemory is how many bytes of memory a device has of its own, for weights and pages. 0: it uses the machine's.
func OwnMemory(d Device) int64 {
	if m, ok := d.(interface{ Memory() int64 }); ok {
		return m.Memory()
	}
	return 0
}
