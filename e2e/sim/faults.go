package sim

import (
	"quire/decode"
	"quire/kvtransfer"
	"quire/prefill"
	"quire/router"
)

// schedule draws when which faults happen, from now until the heal.
func (w *World) schedule() {
	p := w.plan
	w.net.min, w.net.max = 100, w.dice.between(500, 5*ms)
	w.net.drop, w.net.dup, w.net.spike, w.net.spikeMax, w.net.flip, w.net.fifo = p.Drop, p.Dup, p.Spike, p.SpikeMax, p.Flip, p.FIFO
	w.bus.syncEvery = p.SyncEvery
	w.straggle, w.net.echo = p.Straggle, p.Echo
	w.sometimes(p.Crash, func() { w.crash(w.anyNode()) })
	w.sometimes(p.Pause, func() { w.pause(w.anyNode()) })
	w.sometimes(p.Cut, func() { w.cut(w.anyNode()) })
	w.sometimes(p.Slow, func() {
		n := w.anyNode()
		n.slow = w.dice.between(20*ms, 300*ms)
		w.cov.mark("fault: slow link")
		w.q.after(w.dice.between(300*ms, 2*sec), func() { n.slow = 0 })
	})
	w.sometimes(p.BusRestart, w.restartBus)
	w.sometimes(p.JournalDown, func() {
		w.bus.journalDown = true
		w.cov.mark("fault: journal down")
		w.q.after(w.dice.between(200*ms, 2*sec), func() { w.bus.journalDown = false })
	})
	w.sometimes(p.Drain, func() { w.drain(w.anyNode()) })
	w.sometimes(p.Burst, func() { w.net.burst = max(w.net.burst, w.q.now+w.dice.between(50*ms, 1200*ms)) })
	w.sometimes(p.Replay, w.net.replay)
	w.sometimes(p.Hang, func() {
		p := w.anyNode().cur
		for _, d := range w.devices {
			d.hangs = d.hangs || d.p == p
		}
	})
	if p.DeviceFail > 0 {
		w.sometimes(1, func() {
			w.deviceFail = w.plan.DeviceFail * pick(w.dice, 1., 1, 10, 20)
			w.q.after(w.dice.between(100*ms, 1*sec), func() { w.deviceFail = 0 })
		})
	}
}

// sometimes does something at random times until the heal, so many times a second on average.
func (w *World) sometimes(rate float64, fn func()) {
	if rate <= 0 {
		return
	}
	d := Time(w.dice.ExpFloat64() / rate * float64(sec))
	w.q.after(d, func() {
		if w.healed {
			return
		}
		fn()
		w.sometimes(rate, fn)
	})
}

func (w *World) anyNode() *node { return w.nodes[w.dice.IntN(len(w.nodes))] }

func (w *World) crash(n *node) {
	if n.cur == nil || n.cur.dead {
		return
	}
	w.cov.mark("fault: crash of a " + string(n.role))
	n.cur.kill(w.dice.between(0, 1*sec))
	n.startIn(w.dice.between(20*ms, 2*sec))
}

// pause stops a process for a while; now and then its successor is started meanwhile.
func (w *World) pause(n *node) {
	p := n.cur
	if p == nil || p.dead || p.paused {
		return
	}
	w.cov.mark("fault: pause of a " + string(n.role))
	p.pause()
	if w.dice.chance(0.4) {
		w.cov.mark("fault: successor of a paused " + string(n.role))
		n.startIn(w.dice.between(10*ms, 500*ms))
	}
	w.paused = append(w.paused, p)
	w.q.after(w.dice.between(50*ms, 3*sec), p.resume)
}

func (w *World) cut(n *node) {
	n.cut = true
	w.q.after(w.dice.between(50*ms, 3*sec), func() { n.cut = false })
}

func (w *World) restartBus() {
	if !w.bus.up {
		return
	}
	w.bus.crash(func(*conn) Time { return w.dice.between(0, 30*ms) })
	w.q.after(w.dice.between(20*ms, 1500*ms), w.busBack)
}

func (w *World) busBack() {
	if !w.bus.up {
		w.bus.restart(func(*conn) Time { return w.dice.between(0, 400*ms) })
	}
}

// drain asks a process to shut down and starts another in its place some time later.
func (w *World) drain(n *node) {
	p := n.cur
	if p == nil || p.dead {
		return
	}
	w.cov.mark("fault: drain of a " + string(n.role))
	n.draining = true
	for _, s := range w.decodes {
		if s.p == p {
			p.run(func() { s.handle(decode.Drain{}) })
		}
	}
	for _, s := range w.prefills {
		if s.p == p {
			p.run(func() { s.handle(prefill.Drain{}) })
			w.q.after(w.dice.between(100*ms, 2*sec), func() { p.run(func() { s.handle(prefill.Abandon{}) }) })
		}
	}
	for _, s := range w.routers {
		if s.p == p {
			p.run(func() { s.handle(router.Drain{Left: kvtransfer.Tick(w.dice.between(0, 2*sec))}) })
		}
	}
	w.q.after(w.dice.between(500*ms, 3*sec), func() {
		if n.cur == p {
			n.again()
		}
	})
}

// again puts a fresh process in place of the present one.
func (n *node) again() {
	n.draining = false
	if n.cur != nil {
		n.cur.kill(0)
	}
	n.startIn(10 * ms)
}

// heal mends everything: from here on there are no faults.
func (w *World) heal() {
	w.logf("heal")
	w.healed = true
	w.net.heal()
	w.deviceFail, w.straggle, w.bus.journalDown = 0, 0, false
	w.busBack()
	if w.plan.Hang > 0 {
		for _, d := range w.devices {
			d.mend()
		}
	}
	for _, p := range w.paused {
		if p.paused {
			p.resume()
		}
	}
	for _, n := range w.nodes {
		n.cut, n.slow = false, 0
		switch {
		case n.draining || n.lies || n.cur == nil:
			n.lies = false
			n.again()
		case n.cur.dead:
			n.startIn(50 * ms)
		}
	}
}
