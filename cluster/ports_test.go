package cluster

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPortInUseSaysByWhomAndWhatToDo(t *testing.T) {
	nats, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer nats.Close()
	go func() {
		for {
			conn, err := nats.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "INFO {\"version\":\"2.15.2\",\"jetstream\":true}\r\n")
			conn.Close()
		}
	}()
	quire := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"version":"0.1.0"}`) }))
	defer quire.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()

	for _, c := range []struct{ flag, address, want string }{
		{"nats", nats.Addr().String(), "(a NATS server 2.15.2 answers there). Use it with --nats-url nats://" + nats.Addr().String() + ", or pick a free port with --nats 127.0.0.1:0"},
		{"http", quire.Listener.Addr().String(), "(Quire 0.1.0 answers there). Pick a free port with --http 127.0.0.1:0"},
		{"http", other.Listener.Addr().String(), "(an HTTP server answers there)"},
	} {
		_, err := Listen(t.Context(), c.flag, c.address)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("--%s %s: want %q, got %v", c.flag, c.address, c.want, err)
		}
	}
	if err := checkPort(t.Context(), "nats", "127.0.0.1:0"); err != nil {
		t.Error(err)
	}
	if err := checkPort(t.Context(), "nats", "not-a-host.invalid:1"); err == nil {
		t.Error("a host that does not exist was taken")
	}
}
