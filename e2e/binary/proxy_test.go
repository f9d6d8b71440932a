//go:build unix

package binary

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"quire/kvtransfer"
	"quire/kvtransfer/wire"
)

// passing is one message between a process and its NATS server.
type passing struct {
	who     string // process
	out     bool   // from the process to the server
	subject string
	data    []byte // without headers
}

// proxy stands between one process and the NATS server and reads what passes. Whatever it tells of has not been handed on yet, and waits
// until watch returns: so a test does something exactly between two messages, however slow or quick the machine is.
type proxy struct {
	who    string
	addr   string // where the process connects
	server string
	watch  func(passing)

	mu    sync.Mutex
	conns map[net.Conn]bool
	over  bool
}

// newProxy listens on an address of this machine until the test ends.
func newProxy(t *testing.T, host, who, server string, watch func(passing)) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{who: who, addr: l.Addr().String(), server: server, watch: watch, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.over = true
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		wg.Wait()
	})
	return p
}

// keep says whether a connection may go on: not once the test is over.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

// serve joins one connection of the process to one of its own. The end of either is the end of both.
func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	if !p.keep(client) || !p.keep(server) {
		_ = client.Close()
		_ = server.Close()
		return
	}
	var wg sync.WaitGroup
	for _, way := range []struct {
		from, to net.Conn
		out      bool
	}{{client, server, true}, {server, client, false}} {
		wg.Go(func() {
			_ = p.pump(way.from, way.to, way.out) // a connection that ends is what the tests are about
			_ = client.Close()
			_ = server.Close()
		})
	}
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

// pump hands on what one side says, line by line and message by message.
func (p *proxy) pump(from io.Reader, to io.Writer, out bool) error {
	r, w := bufio.NewReaderSize(from, 64<<10), bufio.NewWriterSize(to, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		if m, head, body, ok := message(line); ok {
			b := make([]byte, body+2)
			if _, err := io.ReadFull(r, b); err != nil {
				return err
			}
			m.who, m.out, m.data = p.who, out, b[head:body]
			p.watch(m)
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}

// message reads the line that comes before a message: how many bytes of headers it has, and how many in all.
func message(line []byte) (m passing, head, all int, ok bool) {
	f := strings.Fields(string(line))
	if len(f) < 3 {
		return m, 0, 0, false
	}
	verb := strings.ToUpper(f[0])
	switch verb {
	case "PUB", "MSG":
	case "HPUB", "HMSG":
		head, _ = strconv.Atoi(f[len(f)-2])
	default:
		return m, 0, 0, false
	}
	all, err := strconv.Atoi(f[len(f)-1])
	m.subject = f[1]
	return m, head, all, err == nil
}

// step names what a message is to its hand-off; n counts what comes more than once: frames by their index, replies by their number.
func (m passing) step() (name string, n int) {
	part := strings.Split(m.subject, ".")
	if len(part) < 2 {
		return "", 0
	}
	env, err := wire.Open(m.data)
	signed := err == nil
	switch {
	case !m.out && part[0] == "quire" && part[1] == "job":
		return "job taken", 0
	case !m.out:
		return "", 0
	case signed && env.Kind == kvtransfer.KindReserve:
		return "reserve", 0
	case signed && env.Kind == kvtransfer.KindReservation:
		return "reserved", 0
	case signed && env.Kind == kvtransfer.KindJob:
		return "job", 0
	case signed && env.Kind == kvtransfer.KindClaim:
		return "claim", 0
	case signed && env.Kind == kvtransfer.KindClaimed:
		return "claimed", 0
	case signed && env.Kind == kvtransfer.KindManifest:
		return "manifest", 0
	case signed && env.Kind == kvtransfer.KindResend:
		if r, err := wire.Decode[kvtransfer.Resend](env.Body); err == nil && r.Ack {
			return "ack", 0
		}
	case strings.HasPrefix(m.subject, "quire.journal.verdict.decode-"):
		return "verdict", 0
	case part[1] == "kv":
		if f, err := wire.DecodeFrame(m.data); err == nil {
			return "frame", int(f.Header.Index)
		}
	case part[1] == "reply":
		if r, err := wire.DecodeReply(m.data); err == nil {
			return "reply", int(r.Header.Number)
		}
	}
	return "", 0
}

// heartbeat reads one.
func (m passing) heartbeat() (hb kvtransfer.Heartbeat, ok bool) {
	if !m.out || !strings.HasPrefix(m.subject, "quire.hb.") {
		return hb, false
	}
	env, err := wire.Open(m.data)
	if err != nil {
		return hb, false
	}
	hb, err = wire.Decode[kvtransfer.Heartbeat](env.Body)
	return hb, err == nil
}

// The proxy hands on byte for byte, and tells of messages with and without headers.
func TestProxy(t *testing.T) {
	in := "CONNECT {}\r\nPUB a.b 3\r\nxyz\r\nHPUB c.d _INBOX.1 6 9\r\nhead\r\nabc\r\nMSG e.f 7 0\r\n\r\nPING\r\nHMSG g 1 r 2 4\r\nhhii\r\n"
	var got []string
	p := &proxy{who: "x", watch: func(m passing) { got = append(got, fmt.Sprintf("%s %s", m.subject, m.data)) }}
	var out bytes.Buffer
	if err := p.pump(strings.NewReader(in), &out, true); err != io.EOF || out.String() != in {
		t.Errorf("%v, handed on %q", err, out.String())
	}
	if want := "[a.b xyz c.d abc e.f  g ii]"; fmt.Sprint(got) != want {
		t.Errorf("told of %v, want %s", got, want)
	}
}
