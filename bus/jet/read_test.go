package jet

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"quire/bus"
)

// backUp does what "nats stream backup" does.
func backUp(t *testing.T, c *Conn, stream, dir string) {
	t.Helper()
	inbox := nats.NewInbox()
	chunks := make(chan *nats.Msg, 1024)
	sub, err := c.nc.ChanSubscribe(inbox, chunks)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	m, err := c.nc.Request("$JS.API.STREAM.SNAPSHOT."+stream, []byte(`{"deliver_subject":"`+inbox+`","no_consumers":true}`), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var resp struct {
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &resp); err != nil || resp.Error != nil {
		t.Fatalf("%v %s", err, m.Data)
	}
	var data []byte
	for {
		select {
		case m := <-chunks:
			if len(m.Data) > 0 {
				data = append(data, m.Data...)
				if m.Reply == "" {
					continue
				}
				if err := m.Respond(nil); err != nil {
					t.Fatal(err)
				}
				continue
			}
		case <-time.After(5 * time.Second):
			t.Fatal("the snapshot does not end")
		}
		break
	}
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, backupInfo), m.Data, 0o600),
		os.WriteFile(filepath.Join(dir, backupData), data, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func tarred(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// bySubject reads what matches a pattern, and nothing where nothing does: neither waits for what may still come.
func bySubject(t *testing.T, c *Conn, names bus.Names) {
	t.Helper()
	for pattern, want := range map[string]int{names.Journal("verdict", "*"): 700, names.Journal("*", "decode-d1"): 700, names.Journal("started", "*"): 0} {
		n := 0
		_, err := c.ReadSubject(t.Context(), names.JournalStream(), pattern, func(m bus.Stored) error {
			if n++; m.Sequence != uint64(n) {
				t.Errorf("%s: message %d is %d", pattern, n, m.Sequence)
			}
			return nil
		})
		if err != nil || n != want {
			t.Errorf("%s: %d messages, want %d, %v", pattern, n, want, err)
		}
	}
}

// A journal is read from a live server, from a backup's folder and from a tar of it, the same.
func TestReadAndBackup(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	server, err := Serve(ServerOptions{DontListen: true, Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	c, err := Connect(ctx, ConnectOptions{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Streams().EnsureShared(ctx); err != nil {
		t.Fatal(err)
	}
	names := bus.Names{}
	if _, err := c.Read(ctx, "NOTHING", 1, nil); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("no stream: %v", err)
	}
	if s, err := c.Read(ctx, names.JournalStream(), 1, nil); err != nil || s.Messages != 0 {
		t.Errorf("empty: %+v, %v", s, err)
	}
	const n = 700
	for i := range n {
		m := bus.Enqueue{Subject: names.Journal("verdict", "decode-d1"), Data: fmt.Appendf(nil, "fact %d", i), Header: map[string][]string{"Quire-Signature": {"ab"}}}
		if _, err := c.Enqueue(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	check := func(r bus.Reader, from uint64) {
		t.Helper()
		next := from
		s, err := r.Read(ctx, names.JournalStream(), from, func(m bus.Stored) error {
			if m.Sequence != next || string(m.Data) != fmt.Sprintf("fact %d", next-1) || m.Header["Quire-Signature"][0] != "ab" || m.Time.IsZero() {
				t.Errorf("message %d: %+v", next, m)
			}
			next++
			return nil
		})
		if err != nil || next != n+1 || s.First != 1 || s.Last != n || s.Messages != n {
			t.Errorf("read up to %d: %+v, %v", next-1, s, err)
		}
	}
	check(c, 1)
	check(c, 650)
	bySubject(t, c, names)
	stop := errors.New("enough")
	if _, err := c.Read(ctx, names.JournalStream(), 1, func(bus.Stored) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the callback's error is lost: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "backup")
	backUp(t, c, names.JournalStream(), dir)
	older := filepath.Join(t.TempDir(), "older") // the name that servers before 2.15 gave
	if err := errors.Join(os.CopyFS(older, os.DirFS(dir)), os.Rename(filepath.Join(older, backupData), filepath.Join(older, backupTar))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, tarred(t, dir), older, tarred(t, older)} {
		b, err := OpenBackup(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		if b.Stream != names.JournalStream() {
			t.Errorf("stream %s", b.Stream)
		}
		check(b, 1)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(b.dir); !os.IsNotExist(err) {
			t.Errorf("left behind: %v", err)
		}
	}
	// What is cut or no backup at all is refused.
	data, err := os.ReadFile(filepath.Join(dir, backupData))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, backupData), data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, t.TempDir(), filepath.Join(dir, backupInfo), filepath.Join(dir, "none")} {
		if b, err := OpenBackup(ctx, path); err == nil {
			t.Errorf("%s is read", path)
			b.Close()
		}
	}
}
