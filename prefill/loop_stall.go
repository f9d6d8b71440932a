package prefill

import "quire/kvtransfer"

// A device that does not answer does not end the process that waits for it. So the loop watches its steps and its zeroing: what waits
// for a device that hangs is given back early enough to be computed elsewhere, and nothing new is taken.

// pass lets time pass for the engine. One that has not answered for three leases cannot be waited for: the process stops.
func (l *Loop) pass(passed kvtransfer.Tick) {
	l.stepping.Pass(passed)
	l.clearing.Pass(passed)
	switch quiet := l.quiet(); {
	case quiet >= kvtransfer.StallStop*l.cfg.Lease:
		l.halt(kvtransfer.Errorf(kvtransfer.DeviceFailed, "prefill: the device has not answered for %d ms", quiet/kvtransfer.Millisecond))
	case l.Stalled():
		for _, a := range l.attempts {
			l.abort(a, l.stall())
		}
	}
}

// quiet is for how long the engine has owed an answer.
func (l *Loop) quiet() kvtransfer.Tick { return max(l.stepping.Quiet(), l.clearing.Quiet()) }

// Stalled says that the engine has owed an answer for two thirds of a lease, where a step may take one third. Then this worker sends no
// heartbeat, so that routers count on it no more, asks for no job, and aborts what it has before decodes' leases end.
func (l *Loop) Stalled() bool { return l.quiet() >= l.cfg.Lease*(waitParts-1)/waitParts }

func (l *Loop) stall() kvtransfer.Error {
	return kvtransfer.Errorf(kvtransfer.DeviceFailed, "prefill: the device has not answered for %d ms", l.quiet()/kvtransfer.Millisecond)
}

// halt stops the process for a reason. Its decodes are told first, and need not wait for their leases; a job that comes after that is turned
// away.
func (l *Loop) halt(why kvtransfer.Error) {
	if l.halted {
		return
	}
	l.halted = true
	for _, a := range l.attempts {
		l.abort(a, kvtransfer.Errorf(kvtransfer.WorkerLost, "prefill: %s stops with %d of %d rows computed: %s", l.cfg.Peer, a.out.Rows(), len(a.tokens), why.Code))
	}
	l.emit(Halt{Error: why})
}
