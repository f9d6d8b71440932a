//go:build unix

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLockIsExclusive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockDir(dir)
	if want := fmt.Sprintf("in use by process %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("want %q, got %v", want, err)
	}
	if err := first.release(); err != nil {
		t.Fatal(err)
	}
	again, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.release(); err != nil {
		t.Fatal(err)
	}
}

func TestLockNeedsADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(file); err == nil {
		t.Fatal("a file was taken for a directory")
	}
}
