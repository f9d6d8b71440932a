package prefill

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/keys"
	"quire/model/modeltest"
)

// TestServiceOverNATS runs jobs, everybody's and its own, over a NATS server in this process, with many frames each, and drains.
func TestServiceOverNATS(t *testing.T) {
	ring, err := keys.Ensure(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := jet.Serve(jet.ServerOptions{Data: t.TempDir(), DontListen: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	// 512 layers of 16 bytes make 64 rows a frame.
	r := newRig(t, ring, modeltest.Options{Layers: 512, PageSize: 32})
	r.connect = func() bus.Bus {
		conn, err := jet.Connect(t.Context(), jet.ConnectOptions{Server: server})
		r.must(err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	r.run(func(r *rig) {
		var jobs []Job
		for i := range 4 {
			jobs = append(jobs, r.job(byte(i+1), 1+40*i, nil))
		}
		r.target = "p1"
		for i := range 4 {
			jobs = append(jobs, r.job(byte(i+5), 20+20*i, nil))
		}
		for _, j := range jobs {
			r.arrived(j)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r.must(r.svc.Drain(ctx))
		r.until("counted", func() bool { return r.svc.Stats().Stats.Done == 8 })
		if s := r.svc.Stats(); s.Figures.Pages.Free != s.Figures.Pages.Total || s.Stats.Aborted > 0 {
			t.Errorf("after draining: %+v", s)
		}
	})
}
