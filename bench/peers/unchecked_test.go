package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRemovalsFit: every removal names text that stands in its source, once. The build of what is left is the command's own work.
func TestRemovalsFit(t *testing.T) {
	dir := t.TempDir()
	name, err := overlay(filepath.Join("..", ".."), dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, r := range removals {
		files[r.file] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(files)+1 {
		t.Fatalf("%d files in %s with %s, %v", len(entries), dir, name, err)
	}
}
