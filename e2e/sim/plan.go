package sim

import (
	"quire/decode"
	"quire/kvtransfer"
	"quire/model/modeltest"
	"quire/prefill"
	"quire/router"
)

// Plan is what a seed draws before its run: the cluster's shape and which faults it gets. Each kind of fault is there or not,
// so that a run has few or many together.
type Plan struct {
	Routers, Prefills, Decodes int
	Strange                    bool // one more prefill, with another compute fingerprint
	engine                     modeltest.Options
	prefillPages, prefillSize  int
	decodePages, decodeSize    int
	decode                     decode.LoopConfig
	prefill                    prefill.LoopConfig
	router                     router.Policy
	Window                     int // messages of one hand-off in a KV stream
	JournalBuffer              int
	DeviceMax                  Time // of one operation
	PromptMax, OutputMax       int
	Asks, LateAsks             int
	Safety                     Time    // how long faults go on
	Cancel                     float64 // of requests

	// Faults. Chances are per message or operation, rates per second.
	Drop, Dup, Spike, Flip, DeviceFail                                      float64
	SpikeMax                                                                Time
	FIFO                                                                    bool
	Crash, Pause, Cut, Slow, BusRestart, JournalDown, Drain, Burst, Trouble float64
	Replay                                                                  float64 // old messages sent again, a second
	Rogue                                                                   float64 // chance that a prefill or router lies in a life
	SyncEvery                                                               Time    // of the bus's files
	Clocks                                                                  bool    // run at different speeds

	// Drawn apart, so that seeds of before keep their plans but for these: Options.early leaves them out.
	Echo     float64 // chance that a message has an older one of its hand-off come again
	Straggle float64 // chance that a device operation takes up to a sixth of a lease
	Hang     float64 // devices that do not answer for long, a second
	Rogue2   float64 // chance that a liar tells one of the newer lies
	Lie      string  // the one that liars tell; "" = any
	MaxAge   Time    // of messages in streams in memory; 0 = the real minute, which few runs last
}

const (
	prefillPool = 11
	decodePool  = 22
)

// drawPlan makes the plan of a seed.
func drawPlan(seed uint64) *Plan {
	d := newDice(seed, 1)
	p := &Plan{
		Routers: pick(d, 1, 1, 2), Prefills: 1 + d.IntN(3), Decodes: 1 + d.IntN(3), Strange: d.chance(0.1),
		prefillPages: 6 + d.IntN(8), prefillSize: 2 + d.IntN(3), decodePages: 8 + d.IntN(10), decodeSize: 2 + d.IntN(3),
		Window: pick(d, 2, 4, 16), JournalBuffer: pick(d, 24, 64, 1024), DeviceMax: pick(d, 1*ms, 5*ms, 20*ms),
		PromptMax: pick(d, 4, 12, 20), OutputMax: pick(d, 2, 5, 9), Asks: 6 + d.IntN(14), LateAsks: 3 + d.IntN(3),
		Safety: d.between(2*sec, 6*sec), Cancel: pick(d, 0, 0.05, 0.3), FIFO: d.chance(0.5), Clocks: d.chance(0.5),
	}
	p.engine = modeltest.Options{Vocab: 40, EOS: 1, Layers: 2, Context: pick(d, 30, 60)}
	lease := kvtransfer.Tick(d.between(600*ms, 1500*ms))
	p.decode = decode.LoopConfig{Lease: lease, RouterSilence: lease + lease/2, MaxOpen: 2 + d.IntN(4), MaxKept: 3 + d.IntN(6),
		MaxBatch: 1 + d.IntN(3), JournalOptional: d.chance(0.1)}
	p.prefill = prefill.LoopConfig{Slots: 1 + d.IntN(3), Chunk: 2 + d.IntN(8), InFlight: 1 + d.IntN(8),
		MaxPayload: kvtransfer.CutOverhead + pick(d, 40, 100, 400)}
	p.router = router.Policy{Model: "fake", Context: p.engine.Context, DefaultMaxTokens: 5, MaxQueue: 8 + d.IntN(16), MaxQueueTenant: 4 + d.IntN(8),
		MaxRunningTenant: pick(d, 0, 0, 2), Silence: 900 * kvtransfer.Millisecond, LostAfter: 1300 * kvtransfer.Millisecond,
		Grace: 1500 * kvtransfer.Millisecond, Patience: kvtransfer.Second, DefaultDeadline: 12 * kvtransfer.Second}
	if d.chance(0.2) { // a crowd
		p.Asks, p.PromptMax, p.decode.MaxOpen, p.decodePages, p.prefillPages = 30+d.IntN(30), 6, 4+d.IntN(5), 12+d.IntN(20), 8+d.IntN(12)
	}
	// As in a real one, what decode has taken from its stream (64 frames) is opened and copied within half a lease.
	p.DeviceMax = min(p.DeviceMax, Time(lease)/130)
	p.drawFaults(d)
	p.drawNewer(newDice(seed, 4), Time(lease))
	return p
}

// drawNewer chooses the faults that came later. Runs without any fault stay so.
func (p *Plan) drawNewer(d dice, lease Time) {
	if !p.faulty() {
		return
	}
	if d.chance(0.3) {
		p.Echo = 0.3 * d.Float64()
	}
	if d.chance(0.3) {
		p.Straggle = 0.05 * d.Float64()
	}
	if d.chance(0.2) {
		p.Hang = 0.5 * d.Float64()
	}
	p.Rogue2 = 0.1
	if d.chance(0.3) {
		p.MaxAge = 6 * lease // as a minute is of the real lease
	}
}

// drawFaults chooses which kinds of fault a run gets. One run in twelve gets none.
func (p *Plan) drawFaults(d dice) {
	if d.chance(1. / 12) {
		p.Cancel = 0
		return
	}
	some := func(v *float64, most float64) {
		if d.chance(0.35) {
			*v = most * d.Float64()
		}
	}
	some(&p.Drop, 0.06)
	some(&p.Dup, 0.1)
	some(&p.Spike, 0.1)
	p.SpikeMax = pick(d, 50*ms, 400*ms, 2*sec)
	some(&p.Flip, 0.02)
	some(&p.DeviceFail, 0.03)
	some(&p.Crash, 0.8)
	some(&p.Pause, 0.6)
	some(&p.Cut, 0.6)
	some(&p.Slow, 0.5)
	some(&p.BusRestart, 0.4)
	some(&p.JournalDown, 0.4)
	some(&p.Drain, 0.4)
	some(&p.Burst, 0.6)
	some(&p.Rogue, 0.8)
	some(&p.Replay, 60)
	if d.chance(0.5) {
		p.SyncEvery = pick(d, 0, 100*ms, 2*sec)
	}
}

// faulty says that there is any fault that a request may be lost for.
func (p *Plan) faulty() bool {
	return p.Drop+p.Dup+p.Spike+p.Flip+p.DeviceFail+p.Crash+p.Pause+p.Cut+p.Slow+p.BusRestart+p.JournalDown+p.Drain+p.Burst+p.Rogue+p.Replay+p.Echo+p.Straggle+p.Hang > 0
}

// limitRows is how many rows a request may take when everybody is there.
func (p *Plan) limitRows() int {
	return min(p.engine.Context, p.prefillPages*p.prefillSize, p.decodePages*p.decodeSize)
}

// leastRows is the least limit that can be seen while some are away.
func (p *Plan) leastRows() int { return p.limitRows() }
