package jet

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A disk that was full: once a write to a stream's file has failed, the server takes nothing more into that stream, or turns JetStream off,
// until it is started again, however much room there is by then. So an embedded server that said so is started anew as soon as its disk
// takes data again. Clients find it again by themselves; what was in memory is lost, as in any restart.

const (
	healEvery = time.Second
	roomBytes = 4 << 20 // that the disk must take before the server is started anew
)

// broken says that a line of the server's log tells of a store that will take nothing more.
func broken(line string) bool {
	for _, sign := range []string{"no space left on device", "critical write error", "JetStream out of resources", "JetStream not current", "disk quota exceeded"} {
		if strings.Contains(strings.ToLower(line), strings.ToLower(sign)) {
			return true
		}
	}
	return false
}

// heal waits for the server's store to break and starts the server anew when the disk has room, until Stop.
func (s *Server) heal(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-s.sick:
		}
		s.log.Error("bus: the disk took no data: streams on disk take none until it does", "dir", s.store)
		for !takes(s.store, roomBytes) {
			if !until(done, healEvery) {
				return
			}
		}
		s.log.Warn("bus: the disk has room again: starting the server anew")
		for err := s.renew(); err != nil; err = s.renew() {
			s.log.Error("bus: the server does not start", "error", err)
			if !until(done, healEvery) {
				return
			}
		}
		select {
		case <-s.sick: // said while it went down
		default:
		}
	}
}

// renew shuts the server down and starts it again.
func (s *Server) renew() error {
	s.shut()
	return s.start()
}

// takes says whether a disk takes so many bytes.
func takes(dir string, bytes int) bool {
	f, err := os.CreateTemp(dir, "room-*")
	if err != nil {
		return false
	}
	defer os.Remove(filepath.Join(dir, filepath.Base(f.Name())))
	_, err = f.Write(make([]byte, bytes))
	if err == nil {
		err = f.Sync()
	}
	return f.Close() == nil && err == nil
}

// until waits; false when done ends it.
func until(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return false
	case <-timer.C:
		return true
	}
}
