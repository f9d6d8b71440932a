//go:build linux

package binary

import (
	"fmt"
	"syscall"
	"testing"
)

// The disk is full: nothing can be recorded, so nothing is decoded, and the client gets one typed error. Once there is room, the server starts
// its streams anew by itself, answers come as before, and the record is whole.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	if err := syscall.Mount("quire-test", data, "tmpfs", 0, "size=8g"); err != nil {
		t.Skipf("a disk of the test's own cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(data, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	size := func(bytes int64) {
		t.Helper()
		if err := syscall.Mount("quire-test", data, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", bytes)); err != nil {
			t.Fatal(err)
		}
	}
	p, http, nats := up(t, "--lease", "1s", "--data", data)
	ask := func() asked {
		var a asked
		a.result, a.err = perform(t.Context(), http, "/v1/chat/completions", tale(taleTokens), nil)
		return a
	}
	alone := ask()
	if alone.err != nil || !alone.Done || alone.Output != taleTokens {
		t.Fatalf("alone: %+v", alone)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(data, &fs); err != nil {
		t.Fatal(err)
	}
	size(int64(fs.Blocks-fs.Bfree) * fs.Bsize)
	for range 2 {
		if got := ask(); got.err != nil || got.Status != 503 || got.Error != "journal_unavailable" || got.Text != "" || got.Done || got.Ends > 0 {
			t.Errorf("the disk is full: %+v", got)
		}
	}
	size(8 << 30)
	eventually(t, "an answer with room on the disk", func() bool { return ask() == alone })
	p.wait("the disk has room again: starting the server anew", 1)
	if out, code := run(t, environ(), "", "audit", "verify", "--nats-url", "nats://"+nats); code != 0 {
		t.Errorf("audit verify: exit %d\n%s", code, out)
	}
}
