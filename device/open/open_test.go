package open

import (
	"strings"
	"testing"

	"quire/device/cuda"
)

func TestNames(t *testing.T) {
	for name, good := range map[string]bool{
		"": true, "auto": true, "cpu": true, "cuda": true, "cuda:0": true, "cuda:7": true,
		"gpu": false, "cuda:": false, "cuda:-1": false, "cuda:x": false, "cuda:99999": false, "cpu:0": false,
	} {
		if err := Check(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestWithoutDriver: auto computes on the CPU and says why, cuda fails with the reason.
func TestWithoutDriver(t *testing.T) {
	t.Setenv("QUIRE_LIBCUDA", "/nowhere/libcuda.so.1")
	d, note, err := Device(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if b := d.Info().Backend; b != "cpu" || cuda.Built && !strings.Contains(note, "/nowhere/libcuda.so.1") || !cuda.Built && note != "" {
		t.Errorf("auto opened %s, note %q", b, note)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	want := "built without CUDA"
	if cuda.Built {
		want = "no CUDA driver: /nowhere/libcuda.so.1"
	}
	for _, name := range []string{"cuda", "cuda:1"} {
		if _, _, err := Device(Options{Device: name}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--device "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
