// Package emulator builds a look-alike of the CUDA driver library that runs the kernels of ../kernel on the CPU, for tests. It
// needs g++ on linux/amd64 and a processor with AVX2, and nothing of NVIDIA's. library/driver.cc says what its environment variables do.
package emulator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Flags are those of g++: contraction off, as for the PTX.
var Flags = []string{"-std=c++17", "-O2", "-ftree-vectorize", "-ffp-contract=off", "-mavx2", "-mfma", "-mf16c", "-fPIC", "-shared",
	"-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-pthread"}

// sources are compiled; what they include counts for the hash.
var sources = []string{"driver.cc", "blocks.cc", "kernels.cc"}

// Build gives the path of the library, compiled from library/ unless that was done before: it is kept in the
// user's cache, under the hash of sources and flags. $QUIRE_EMULATOR_FLAGS adds flags, such as -fsanitize=address.
func Build() (string, error) {
	_, self, _, ok := runtime.Caller(0)
	if !ok {
		return "", fmt.Errorf("emulator: the sources cannot be found")
	}
	dir := filepath.Join(filepath.Dir(self), "library")
	flags := slices.Concat(Flags, strings.Fields(os.Getenv("QUIRE_EMULATOR_FLAGS")))
	h := sha256.New()
	fmt.Fprintln(h, flags)
	for _, pattern := range []string{"*.cc", "*.h", "../../kernel/*.cu", "../../kernel/*.cuh", "../../include/*.h"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", fmt.Errorf("emulator: %w", err)
		}
		for _, f := range files {
			if err := add(h, f); err != nil {
				return "", fmt.Errorf("emulator: %w", err)
			}
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "quire-emulator")
	lib := filepath.Join(cache, hex.EncodeToString(h.Sum(nil)[:12])+".so")
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("emulator: %w", err)
	}
	return lib, compile(dir, lib, flags)
}

func add(w io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintln(w, filepath.Base(file))
	_, err = io.Copy(w, f)
	return err
}

// compile writes the library under another name first: several processes may build it at the same time.
func compile(dir, lib string, flags []string) error {
	tmp, err := os.CreateTemp(filepath.Dir(lib), "building-")
	if err != nil {
		return fmt.Errorf("emulator: %w", err)
	}
	_ = tmp.Close() // only its name is wanted
	defer os.Remove(tmp.Name())
	cmd := exec.Command("g++", slices.Concat(flags, []string{"-o", tmp.Name()}, sources)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("emulator: g++: %w\n%s", err, out)
	}
	return os.Rename(tmp.Name(), lib)
}
