package decode

import "quire/kvtransfer"

// A device that does not answer does not end the process that waits for it: the loop goes on, and could say for ever that all is
// well. So the loop watches what it gave to the engine, by kind, since each kind is done in turn by goroutines of its own.

// Kinds of work that the engine does for the loop.
const (
	callStep = iota
	callWitness
	callCopy
	callZero
	calls
)

// began notes an effect that the engine has to perform.
func (l *Loop) began(e Effect) {
	switch e.(type) {
	case Step:
		l.stalls[callStep].Began()
	case Witness:
		l.stalls[callWitness].Began()
	case CopyFrame:
		l.stalls[callCopy].Began()
	case Zero:
		l.stalls[callZero].Began()
	}
}

// reported notes that the engine has performed one.
func (l *Loop) reported(ev Event) {
	switch ev.(type) {
	case StepDone:
		l.stalls[callStep].Ended()
	case WitnessDone:
		l.stalls[callWitness].Ended()
	case FrameCopied:
		l.stalls[callCopy].Ended()
	case Zeroed:
		l.stalls[callZero].Ended()
	}
}

// pass lets time pass for the engine. One that has not answered for three leases cannot be waited for: the process stops, and what is
// left of it, the call that hangs included, ends with it.
func (l *Loop) pass(passed kvtransfer.Tick) {
	for i := range l.stalls {
		l.stalls[i].Pass(passed)
	}
	if quiet := l.quiet(); quiet >= kvtransfer.StallStop*l.cfg.Lease {
		l.stopped = true
		l.do(Stop{Err: kvtransfer.Errorf(kvtransfer.DeviceFailed, "decode: the device has not answered for %d ms", quiet/kvtransfer.Millisecond)})
	}
}

// quiet is for how long the engine has owed an answer.
func (l *Loop) quiet() (most kvtransfer.Tick) {
	for _, s := range l.stalls {
		most = max(most, s.Quiet())
	}
	return most
}

// Stalled says that the engine has owed an answer for a lease. Then this worker sends no heartbeat, so that its routers take it for dead,
// and promises nothing, until the engine answers.
func (l *Loop) Stalled() bool { return l.quiet() >= l.cfg.Lease }
