package kvtransfer

// Stall watches calls to a device that are out: whether one of them comes back. It counts only time for which its owner was awake:
// a process that was stopped and goes on has not waited. The zero value watches nothing.
//
// Invariant: out >= 0, and quiet is 0 while out is 0.
type Stall struct {
	out   int
	quiet Tick // since one came back last, or since the first of those that are out began
}

// awake is the most that one look at the clock may add: owners look every few milliseconds, and what is longer was a pause.
const awake = 100 * Millisecond

// StallStop is for how many leases a device may be silent before its process stops. After one lease it is silent itself.
const StallStop = 3

// Began says that a call went out.
func (s *Stall) Began() { s.out++ }

// Ended says that one came back, well or not. One that nobody sent is ignored.
func (s *Stall) Ended() {
	s.quiet = 0
	s.out = max(0, s.out-1)
}

// Pass lets time pass: so long since the last look.
func (s *Stall) Pass(passed Tick) {
	if s.out > 0 {
		s.quiet += min(max(0, passed), awake)
	}
}

// Quiet is for how long calls have been out and none has come back.
func (s Stall) Quiet() Tick { return s.quiet }
