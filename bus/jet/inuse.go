package jet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
)

// InUse says that an address is taken, and by what.
type InUse struct {
	Addr    string // HOST:PORT
	Version string // of the NATS server that answers there; "" when something else does
}

// Error names the ways out.
func (e InUse) Error() string {
	if e.Version == "" {
		return fmt.Sprintf("%s is in use (not by a NATS server). Pick a free port with --nats 127.0.0.1:0.", e.Addr)
	}
	return fmt.Sprintf("%s is in use (a NATS server %s answers there). Use it with --nats-url nats://%s, or pick a free port with --nats 127.0.0.1:0.",
		e.Addr, e.Version, e.Addr)
}

// probe says whether an address can be listened on.
func probe(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("bus: server on %s: %w", addr, err)
	}
	return InUse{Addr: addr, Version: serverVersion(addr)}
}

// serverVersion reads the INFO line with which a NATS server greets; "" when there is none.
func serverVersion(addr string) string {
	conn, err := net.DialTimeout("tcp", dialable(addr), time.Second)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	line, err := bufio.NewReaderSize(conn, 64<<10).ReadSlice('\n')
	if err != nil {
		return ""
	}
	text, ok := strings.CutPrefix(string(line), "INFO ")
	if !ok {
		return ""
	}
	var info struct {
		Version string `json:"version"`
	}
	if json.Unmarshal([]byte(text), &info) != nil || len(info.Version) > 64 {
		return ""
	}
	return info.Version
}

// dialable turns an address to listen on into one to dial.
func dialable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
