package procfile

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options of a Supervisor. Zero values take the defaults that are named.
type Options struct {
	Entries     []Entry
	Dir         string        // working directory of the processes; "" = this one's
	Env         []string      // NAME=VALUE; PORT and PS are added for each process
	BasePort    int           // PORT of the first entry (default 5000); each further entry has 100 more, as in foreman
	Out         io.Writer     // every line of output, prefixed
	Colour      bool          // colour the prefixes
	ExitOnDeath bool          // the first death stops all; otherwise the process is started again
	Grace       time.Duration // from SIGTERM to SIGKILL (default 5 s)
	BackoffMin  time.Duration // before the first restart (default 0.5 s); doubled for each death in a row
	BackoffMax  time.Duration // default 10 s; a life longer than this makes the next death the first again
}

// Supervisor runs the processes of a Procfile.
type Supervisor struct {
	o      Options
	out    *output
	kill   chan struct{}
	killed sync.Once
}

// New makes a Supervisor; Run starts the processes.
func New(o Options) *Supervisor {
	if o.BasePort == 0 {
		o.BasePort = 5000
	}
	if o.Grace == 0 {
		o.Grace = 5 * time.Second
	}
	if o.BackoffMin == 0 {
		o.BackoffMin = 500 * time.Millisecond
	}
	if o.BackoffMax == 0 {
		o.BackoffMax = 10 * time.Second
	}
	width := len("quire")
	for _, e := range o.Entries {
		width = max(width, len(e.Name))
	}
	return &Supervisor{o: o, out: &output{w: o.Out, width: width, colour: o.Colour}, kill: make(chan struct{})}
}

// Kill makes Run send SIGKILL to every process group at once. It may be called more than once, from any goroutine.
func (s *Supervisor) Kill() { s.killed.Do(func() { close(s.kill) }) }

func (s *Supervisor) isKilled() bool {
	select {
	case <-s.kill:
		return true
	default:
		return false
	}
}

// Died is the error of Run when a death stopped everything (ExitOnDeath).
type Died struct {
	Name  string
	State string // "exit status 1", "signal: killed"
	Code  int    // exit status, 128 + signal, or 1
}

// Error says who died and how.
func (d *Died) Error() string { return fmt.Sprintf("procfile: %s died: %s", d.Name, d.State) }

// Run starts every entry and returns when all process groups are gone: after ctx ended (SIGTERM to each group, SIGKILL after
// Grace), after Kill, or, with ExitOnDeath, after the first death. It returns nil when ctx or Kill ended it.
func (s *Supervisor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i, e := range s.o.Entries {
		wg.Go(func() {
			if err := s.keep(ctx, i, e); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if died, ok := context.Cause(ctx).(*Died); ok {
		return died
	}
	return nil
}

// keep runs one entry until ctx ends; with ExitOnDeath it returns the death instead of starting the process again.
func (s *Supervisor) keep(ctx context.Context, i int, e Entry) error {
	wait := s.o.BackoffMin
	for {
		began := time.Now()
		died := s.once(ctx, i, e)
		if ctx.Err() != nil || s.isKilled() {
			return nil
		}
		if s.o.ExitOnDeath {
			s.out.line(-1, "quire", fmt.Sprintf("%s died (%s): stopping all", e.Name, died.State))
			return died
		}
		if time.Since(began) > s.o.BackoffMax {
			wait = s.o.BackoffMin
		}
		s.out.line(-1, "quire", fmt.Sprintf("%s died (%s): starting it again in %.1f s", e.Name, died.State, wait.Seconds()))
		select {
		case <-ctx.Done():
			return nil
		case <-s.kill:
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, s.o.BackoffMax)
	}
}

// env is the environment of the i-th process: the given one, PORT and, as foreman names it, PS.
func (s *Supervisor) env(i int, e Entry) []string {
	out := make([]string, 0, len(s.o.Env)+2)
	for _, kv := range s.o.Env {
		if !strings.HasPrefix(kv, "PORT=") && !strings.HasPrefix(kv, "PS=") {
			out = append(out, kv)
		}
	}
	return append(out, "PORT="+strconv.Itoa(s.o.BasePort+100*i), "PS="+e.Name+".1")
}
