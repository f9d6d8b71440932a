package jet

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"quire/bus"
)

// What a backup of "nats stream backup" consists of, and how much of it is taken.
const (
	backupInfo   = "backup.json"
	backupData   = "stream.arc.s2" // of a server of 2.15 or later
	backupTar    = "stream.tar.s2" // of an older one
	maxInfo      = 1 << 20         // bytes
	maxBackup    = 64 << 30
	restoreChunk = 512 << 10
)

// Backup is a stream read from a backup: a server in this process has it, in a folder of its own that Close removes.
type Backup struct {
	*Conn
	Stream string
	server *Server
	dir    string
}

// OpenBackup reads what "nats stream backup" wrote: its folder, or a tar file of that folder. The messages are restored into a
// server of this process that nobody else can reach.
func OpenBackup(ctx context.Context, path string) (_ *Backup, err error) {
	dir, err := os.MkdirTemp("", "quire-backup-")
	if err != nil {
		return nil, fmt.Errorf("bus: backup: %w", err)
	}
	b := &Backup{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("bus: backup: %w", err)
	}
	if !st.IsDir() {
		if path, err = unpack(path, filepath.Join(dir, "unpacked")); err != nil {
			return nil, err
		}
	}
	if b.server, err = Serve(ServerOptions{DontListen: true, Data: filepath.Join(dir, "data")}); err != nil {
		return nil, err
	}
	if b.Conn, err = Connect(ctx, ConnectOptions{Server: b.server, Name: "backup"}); err != nil {
		return nil, err
	}
	b.Stream, err = b.restore(ctx, path)
	return b, err
}

// Close ends the server and removes its folder.
func (b *Backup) Close() error {
	var errs []error
	if b.Conn != nil {
		errs = append(errs, b.Conn.Close())
	}
	if b.server != nil {
		b.server.Stop()
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

// unpack takes the two files of a backup out of a tar file, and nothing else.
func unpack(path, to string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("bus: backup: %w", err)
	}
	defer f.Close()
	if err := os.MkdirAll(to, 0o700); err != nil {
		return "", fmt.Errorf("bus: backup: %w", err)
	}
	found := 0
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", fmt.Errorf("bus: backup: %s: %w", path, err)
		}
		name := filepath.Base(h.Name)
		if h.Typeflag != tar.TypeReg || name != backupInfo && name != backupData && name != backupTar {
			continue
		}
		if h.Size > maxBackup {
			return "", fmt.Errorf("bus: backup: %s: %d bytes, limit %d", h.Name, h.Size, int64(maxBackup))
		}
		out, err := os.OpenFile(filepath.Join(to, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return "", fmt.Errorf("bus: backup: %w", err)
		}
		_, err = io.Copy(out, io.LimitReader(r, h.Size))
		if err = errors.Join(err, out.Close()); err != nil {
			return "", fmt.Errorf("bus: backup: %w", err)
		}
		found++
	}
	if found != 2 {
		return "", fmt.Errorf("bus: backup: %s: %d of the two files %s and %s or %s are in it", path, found, backupInfo, backupData, backupTar)
	}
	return to, nil
}

// restore hands a backup's folder to the server and gives the stream's name.
func (b *Backup) restore(ctx context.Context, dir string) (string, error) {
	name, request, err := restoreRequest(filepath.Join(dir, backupInfo))
	if err != nil {
		return "", err
	}
	var resp struct {
		DeliverSubject string `json:"deliver_subject"`
		Error          *struct{ Description string }
	}
	if err := b.ask(ctx, "$JS.API.STREAM.RESTORE."+name, request, &resp); err != nil {
		return "", err
	}
	if resp.Error != nil || resp.DeliverSubject == "" {
		return "", fmt.Errorf("bus: backup: restore %s: %+v", name, resp.Error)
	}
	f, err := openData(dir)
	if err != nil {
		return "", fmt.Errorf("bus: backup: %w", err)
	}
	defer f.Close()
	buf := make([]byte, restoreChunk)
	for {
		n, err := io.ReadFull(f, buf)
		if n > 0 {
			if m, err := b.request(ctx, resp.DeliverSubject, buf[:n]); err != nil || len(m.Data) > 0 {
				return "", fmt.Errorf("bus: backup: restore %s: %v %s", name, err, refusal(m))
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("bus: backup: %w", err)
		}
	}
	m, err := b.request(ctx, resp.DeliverSubject, nil)
	if text := refusal(m); err != nil || text != "" {
		return "", fmt.Errorf("bus: backup: restore %s: %v %s", name, err, text)
	}
	return name, nil
}

// openData opens the one file of messages that a backup has. The server tells the two forms apart.
func openData(dir string) (*os.File, error) {
	f, err := os.Open(filepath.Join(dir, backupData))
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	return os.Open(filepath.Join(dir, backupTar))
}

// restoreRequest reads the configuration and state of a backup. What ties the stream to its old place is taken out.
func restoreRequest(path string) (name string, request []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("bus: backup: %w", err)
	}
	defer f.Close()
	var info struct {
		Config map[string]json.RawMessage `json:"config"`
		State  json.RawMessage            `json:"state"`
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxInfo))
	if err == nil {
		err = json.Unmarshal(raw, &info)
	}
	if err == nil {
		err = json.Unmarshal(info.Config["name"], &name)
	}
	if err == nil {
		err = bus.CheckSubject("$JS.API.STREAM.RESTORE." + name)
	}
	if err != nil {
		return "", nil, fmt.Errorf("bus: backup: %s: %w", path, err)
	}
	for _, gone := range []string{"placement", "mirror", "sources", "republish", "sealed", "max_age"} {
		delete(info.Config, gone)
	}
	info.Config["num_replicas"] = json.RawMessage("1")
	request, err = json.Marshal(info)
	return name, request, err
}

func (b *Backup) request(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return b.nc.RequestWithContext(ctx, subject, data)
}

func (b *Backup) ask(ctx context.Context, subject string, data []byte, into any) error {
	m, err := b.request(ctx, subject, data)
	if err != nil {
		return wrap("restore", err)
	}
	if err := json.Unmarshal(m.Data, into); err != nil {
		return fmt.Errorf("bus: backup: restore: %w", err)
	}
	return nil
}

// refusal is the error that an answer carries, "" for none.
func refusal(m *nats.Msg) string {
	if m == nil || len(m.Data) == 0 {
		return ""
	}
	var a struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return err.Error()
	}
	if a.Error != nil {
		return a.Error.Description
	}
	return ""
}
