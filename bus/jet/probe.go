package jet

import (
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"quire/bus"
)

// Publishing to an inbox that nobody listens on succeeds. But a server tells a publisher so when the message has a reply
// subject: "no responders" comes back there. So a frame now and then carries one, below an inbox of this connection.

// probeFor is how long after a frame the server's word about it is waited for.
const probeFor = 10 * time.Second

// importReply begins the reply subject of a call that crossed accounts. A reply to a reply makes the server keep one more
// mapping between the accounts for as long as the export's threshold, so nothing is asked there and Gone stays open.
const importReply = "_R_."

// caller is who waits for one answer.
type caller struct {
	last time.Time     // of the last frame asked about; guarded by probes.mu
	away bool          // guarded by probes.mu. Invariant: true exactly when gone is closed
	gone chan struct{} // never written to
}

// probes is a connection's inbox for what the server says about frames. The names below it are not to be guessed: whoever could
// publish to one would end a call.
type probes struct {
	mu    sync.Mutex
	inbox string // "" before listen
	open  map[string]*caller
	asked []asked // oldest first
}

type asked struct {
	token string
	at    time.Time
}

// listen subscribes once for each connection.
func (p *probes) listen(nc *nats.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inbox != "" {
		return nil
	}
	inbox := nc.NewInbox()
	if _, err := nc.Subscribe(inbox+".*", p.heard); err != nil {
		return err
	}
	p.inbox, p.open = inbox, map[string]*caller{}
	return nil
}

// ask gives the reply subject of a frame, or "" when it is not asked about: too soon after the last one, or of no use.
func (p *probes) ask(c *caller, reply string) string {
	if strings.HasPrefix(reply, importReply) {
		return ""
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inbox == "" || c.away || !c.last.IsZero() && now.Sub(c.last) < bus.ProbeEvery {
		return ""
	}
	for len(p.asked) > 0 && now.Sub(p.asked[0].at) > probeFor {
		delete(p.open, p.asked[0].token)
		p.asked = p.asked[1:]
	}
	token := rand.Text()
	c.last, p.open[token] = now, c
	p.asked = append(p.asked, asked{token, now})
	return p.inbox + "." + token
}

// heard takes the server's word. Whatever else arrives here, from a caller that answers its answers, means that it is there.
func (p *probes) heard(m *nats.Msg) {
	if len(m.Data) > 0 || m.Header.Get("Status") != "503" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.open[m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]]
	if c != nil && !c.away {
		c.away = true
		close(c.gone)
	}
}
