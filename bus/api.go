package bus

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Headers of the NATS services convention. Every client must look at them.
const (
	HeaderError     = "Nats-Service-Error"
	HeaderErrorCode = "Nats-Service-Error-Code"
)

// API is the door through which clients ask over the bus. The connections of bus/jet and of bus/bustest implement it.
type API interface {
	// Serve listens on every endpoint until Drain. fn is called one request at a time per endpoint and must not wait: it hands
	// the call on and returns. Whoever has the call ends it with exactly one of End, Fail or Reply.
	Serve(ctx context.Context, s ServiceSpec, fn func(*Call)) (Sub, error)
	// Stream asks and calls fn with each frame of the answer, in order, until the empty message without headers (nil). A frame
	// with error headers ends it as a ServiceError. ErrNoResponders comes at once; silence for longer than Ask.Idle is
	// ErrTimeout; an error from fn ends it and is returned. That the end message came proves nothing about frames lost on the
	// way: count them.
	Stream(ctx context.Context, a Ask, fn func(Msg) error) error
}

// ServiceSpec describes a service as discovery ($SRV.INFO, "nats micro ls") shows it.
type ServiceSpec struct {
	Name        string // [A-Za-z0-9_-]+: the kind, shared by all instances
	Version     string // strict SemVer, "1.0.0"
	Description string
	Queue       string // queue group: one per role, never the default that all services share
	Metadata    map[string]string
	Endpoints   []Endpoint
	Stats       func() any // what $SRV.STATS gives as data of each endpoint; must marshal to JSON; may be nil
}

// Endpoint is one operation.
type Endpoint struct {
	Name            string // chat
	Subject         string // Names.API("*", "chat"), or of one tenant
	Metadata        map[string]string
	MaxPending      int // requests that wait for fn; beyond it they are dropped, so admission must be quicker; 0 = 4096
	MaxPendingBytes int // 0 = 64 MiB
}

// Ask is a request for many frames.
type Ask struct {
	Subject string
	Header  map[string][]string
	Data    []byte
	Idle    time.Duration // longest silence; 0 = 60 s
}

// Call is one request and the way back.
type Call struct {
	Msg
	Endpoint string // Endpoint.Name
	Tenant   string // the token at the first * of the endpoint's subject; the third token where there is none
	Room     int    // bytes that one frame may take, headers included

	// Reach sends one message to the caller. An implementation sets it.
	Reach func(header map[string][]string, data []byte) error
	// Probe is Reach for a frame of a streamed answer, such that the server may say that nobody listens for it: the first one is
	// asked about, and later ones at least ProbeEvery apart. nil where that is not possible.
	Probe func(header map[string][]string, data []byte) error
	// Gone is closed when the server said that nobody listened for a frame: the caller is away, or lost what was sent while it
	// was. It may stay open though the caller is away. nil = never closed.
	Gone <-chan struct{}
}

// ProbeEvery is how far apart the frames of an answer are whose arrival is asked about.
const ProbeEvery = time.Second

// Send sends one frame of a streamed answer. Success does not mean that anybody got it; see Gone.
func (c *Call) Send(header map[string][]string, data []byte) error {
	if err := c.check(header, data); err != nil {
		return err
	}
	if c.Probe != nil {
		return c.Probe(header, data)
	}
	return c.Reach(header, data)
}

func (c *Call) check(header map[string][]string, data []byte) error {
	if len(data) == 0 && len(header) == 0 {
		return fmt.Errorf("bus: frame for %s: empty without headers, which would end the answer", c.Endpoint)
	}
	if size := headerSize(header) + len(data); size > c.Room {
		return fmt.Errorf("bus: frame for %s: %d bytes, room for %d: %w", c.Endpoint, size, c.Room, ErrTooLarge)
	}
	return nil
}

// Reply answers a request that is not streamed.
func (c *Call) Reply(data []byte) error {
	if err := c.check(nil, data); err != nil {
		return err
	}
	return c.Reach(nil, data)
}

// End sends the empty message without headers that closes a streamed answer.
func (c *Call) End() error { return c.Reach(nil, nil) }

// Fail sends an error: the headers of the services convention and the error's JSON as data. streamed says that the caller
// waits for the empty message, which then follows.
func (c *Call) Fail(code int, text string, data []byte, streamed bool) error {
	h := map[string][]string{HeaderError: {oneLine(text)}, HeaderErrorCode: {strconv.Itoa(code)}}
	if headerSize(h)+len(data) > c.Room {
		data = nil
	}
	if err := c.Reach(h, data); err != nil || !streamed {
		return err
	}
	return c.End()
}

// ServiceError is an answer with error headers.
type ServiceError struct {
	Code int
	Text string
	Data []byte // JSON with code, type and param, as the HTTP door gives it
}

// Error gives the text and the code.
func (e *ServiceError) Error() string { return fmt.Sprintf("bus: service: %s (%d)", e.Text, e.Code) }

// AsServiceError reads the error headers of an answer; nil when there are none.
func AsServiceError(m Msg) *ServiceError {
	text, code := m.Header[HeaderError], m.Header[HeaderErrorCode]
	if len(text) == 0 && len(code) == 0 {
		return nil
	}
	e := &ServiceError{Code: 500, Data: m.Data}
	if len(text) > 0 {
		e.Text = text[0]
	}
	if len(code) > 0 {
		if n, err := strconv.Atoi(code[0]); err == nil {
			e.Code = n
		}
	}
	return e
}

// TenantOf finds the tenant in a subject: the token at the first * of the endpoint's pattern, or else the third.
func TenantOf(pattern, subject string) string {
	at, want := 0, 2
	for i, p := range tokens(pattern) {
		if p == "*" {
			want = i
			break
		}
	}
	for _, s := range tokens(subject) {
		if at == want {
			return s
		}
		at++
	}
	return ""
}
