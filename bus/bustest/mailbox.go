package bustest

import "sync"

// mailbox runs functions one at a time, in order, on a goroutine that lives only while there are some.
type mailbox struct {
	mu      sync.Mutex
	queue   []func()
	running bool
	shut    bool
	waiters []chan struct{}
}

// put adds f; false after shut.
func (m *mailbox) put(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut {
		return false
	}
	m.queue = append(m.queue, f)
	if !m.running {
		m.running = true
		go m.run()
	}
	return true
}

func (m *mailbox) run() {
	for {
		m.mu.Lock()
		if len(m.queue) == 0 {
			m.running = false
			for _, w := range m.waiters {
				close(w)
			}
			m.waiters = nil
			m.mu.Unlock()
			return
		}
		f := m.queue[0]
		m.queue = m.queue[1:]
		m.mu.Unlock()
		f()
	}
}

// drain refuses new functions and waits until those already there have run; with drop they are thrown away instead.
func (m *mailbox) drain(drop bool) {
	m.mu.Lock()
	m.shut = true
	if drop {
		m.queue = nil
	}
	if !m.running {
		m.mu.Unlock()
		return
	}
	w := make(chan struct{})
	m.waiters = append(m.waiters, w)
	m.mu.Unlock()
	<-w
}

// close refuses new functions and throws away those that wait, without waiting.
func (m *mailbox) close() {
	m.mu.Lock()
	m.shut = true
	m.queue = nil
	m.mu.Unlock()
}
