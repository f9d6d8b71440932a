package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// probeTime is how long a stranger on a port has to say who it is.
const probeTime = time.Second

// Listen opens a door's port, or says who has it and which flag picks another.
func Listen(ctx context.Context, flag, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, portError(ctx, flag, address, err)
	}
	return l, nil
}

// checkPort tells whether a server could listen here.
func checkPort(ctx context.Context, flag, address string) error {
	l, err := Listen(ctx, flag, address)
	if err != nil {
		return err
	}
	return l.Close()
}

// portError turns an error of listening into one that says what to do. flag is "nats" or "http".
func portError(ctx context.Context, flag, address string, err error) error {
	host, _, splitErr := net.SplitHostPort(address)
	if splitErr != nil || !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("cluster: --%s %s: %w", flag, address, err)
	}
	free := net.JoinHostPort(host, "0")
	if v := probeNATS(ctx, address); v != "" {
		return fmt.Errorf("%s is in use (a NATS server %s answers there). Use it with --nats-url nats://%s, or pick a free port with --%s %s",
			address, v, address, flag, free)
	}
	who := "another program"
	if v := probeHTTP(ctx, address); v != "" {
		who = v + " answers there"
	}
	return fmt.Errorf("%s is in use (%s). Pick a free port with --%s %s", address, who, flag, free)
}

// probeNATS gives the version of the NATS server at an address, or "".
func probeNATS(ctx context.Context, address string) string {
	d := net.Dialer{Timeout: probeTime}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return ""
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(probeTime)) != nil {
		return ""
	}
	line, err := bufio.NewReader(io.LimitReader(conn, 64<<10)).ReadString('\n')
	if err != nil {
		return ""
	}
	text, ok := strings.CutPrefix(line, "INFO ")
	var info struct {
		Version string `json:"version"`
	}
	if !ok || json.Unmarshal([]byte(text), &info) != nil {
		return ""
	}
	return info.Version
}

// probeHTTP names the HTTP server at an address, or "".
func probeHTTP(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/version", nil)
	if err != nil {
		return ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var v struct {
		Version string `json:"version"`
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil && json.Unmarshal(b, &v) == nil && v.Version != "" {
		return "Quire " + strings.TrimPrefix(v.Version, "v")
	}
	return "an HTTP server"
}
