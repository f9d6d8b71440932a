package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestGeneratedFilesAreCurrent generates the kernels again and compares them with those in the tree.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	tree, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	generate()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 8 {
		t.Fatalf("generated %d files, want at least 8 (%v)", len(files), err)
	}
	for _, f := range files {
		want, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(tree, filepath.Base(f)))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is not what the generator writes: go generate ./device/cpu", filepath.Base(f))
		}
	}
}
