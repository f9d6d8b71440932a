package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"quire/cluster"
)

// Process runners kill 5 s after the first signal. drainTime is how long work in flight may go on; whatever still hangs at lastTime
// (a model being read, say) ends with the process.
const (
	drainTime = 4300 * time.Millisecond
	lastTime  = 4900 * time.Millisecond
)

// serve starts roles and keeps them up until a signal or until one of them ends by itself. The first SIGINT, SIGTERM or SIGHUP
// drains; the second ends the process at once.
func serve(start func(context.Context) (*cluster.Cluster, error), ready func(*cluster.Cluster)) error {
	signals := ends()
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	go func() {
		<-signals
		close(stop)
		cancel()
		select {
		case <-signals:
			os.Exit(exitInterrupted)
		case <-time.After(lastTime):
			os.Exit(exitFailed)
		}
	}()

	c, err := start(ctx)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil // asked to stop before it had started
		}
		return err
	}
	ready(c)
	var died error
	select {
	case <-stop:
	case died = <-c.Dead():
		time.AfterFunc(lastTime, func() { os.Exit(exitFailed) }) // what hangs, a device say, ends with the process
	}
	drain, done := context.WithTimeout(context.Background(), drainTime)
	defer done()
	return errors.Join(died, c.Stop(drain))
}

// ends gives the signals that end a process. SIGHUP is one of them unless it was ignored from the start, as under nohup.
func ends() chan os.Signal {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	if underGoRun() {
		go func() {
			orphaned(os.Getppid())
			signals <- syscall.SIGTERM
		}()
	}
	return signals
}

// underGoRun says whether `go run` started this process.
func underGoRun() bool { return strings.Contains(os.Args[0], "go-build") }

// orphaned waits until this process has another parent: `go run` dies of a SIGTERM without passing it on.
func orphaned(parent int) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if os.Getppid() != parent {
			return
		}
	}
}
