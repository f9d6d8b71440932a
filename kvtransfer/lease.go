package kvtransfer

// Lease is how long decode keeps pages for a hand-off that nobody works on. It counts on decode's own ticks and is restarted
// by the claim, by each accepted frame and by prefill's progress; it never outlives the request's deadline.
type Lease struct {
	Duration Tick // > 0
	End      Tick // the lease has ended when now >= End. Invariant: End <= Deadline.
	Deadline Tick // of the request
}

// NewLease starts a lease of a duration at now, under a deadline that is deadlineLeft away.
func NewLease(now, duration, deadlineLeft Tick) Lease {
	l := Lease{Duration: duration, Deadline: now + deadlineLeft}
	l.Restart(now)
	return l
}

// Restart gives the lease its whole duration again, but never beyond the deadline. A lease that has ended stays ended.
func (l *Lease) Restart(now Tick) {
	if l.End != 0 && now >= l.End {
		return
	}
	l.End = min(now+l.Duration, l.Deadline)
}

// Left is how much of the lease is left, 0 when it has ended.
func (l Lease) Left(now Tick) Tick { return max(0, l.End-now) }

// DeadlineLeft is how much is left until the request's deadline, 0 when it has passed.
func (l Lease) DeadlineLeft(now Tick) Tick { return max(0, l.Deadline-now) }

// Expired says why the lease has ended: the deadline, or silence for its duration. The zero Error means that it is alive.
func (l Lease) Expired(now Tick) Error {
	if err := l.Overdue(now); !err.IsZero() {
		return err
	}
	if now >= l.End {
		return Errorf(LeaseExpired, "lease: ended %d us ago, duration %d us", now-l.End, l.Duration)
	}
	return Error{}
}

// Overdue says whether the request's deadline has passed; it holds after the verdict too, when the lease no longer counts.
func (l Lease) Overdue(now Tick) Error {
	if now >= l.Deadline {
		return Errorf(DeadlineExceeded, "deadline: passed %d us ago", now-l.Deadline)
	}
	return Error{}
}
