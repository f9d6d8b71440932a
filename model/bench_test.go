package model_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"quire/device/cpu"
	"quire/model"
)

// benchSource opens $QUIRE_BENCH_MODEL, or SmolLM2 from the shared folder.
func benchSource(b *testing.B) *model.Source {
	path := os.Getenv("QUIRE_BENCH_MODEL")
	if path == "" {
		path = shared(b, "models", "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
	}
	return open(b, path)
}

// rate reports tokens per second of wall time and, with one thread, of processor time, on which other load counts little.
func rate(b *testing.B, tokens int, run func()) {
	b.ResetTimer()
	start := processSeconds()
	for range b.N {
		run()
	}
	b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tok/s")
	b.ReportMetric(float64(tokens*b.N)/(processSeconds()-start), "tok/cpu-s")
}

// benchThreads is $QUIRE_BENCH_THREADS, or 1.
func benchThreads() int {
	n, _ := strconv.Atoi(os.Getenv("QUIRE_BENCH_THREADS"))
	return max(1, n)
}

// BenchmarkPrefill is a prompt of 512 tokens in chunks of 256: tokens per second.
func BenchmarkPrefill(b *testing.B) {
	src := benchSource(b)
	for _, name := range []string{"int8", "f32"} {
		b.Run(name, func(b *testing.B) {
			o := rigOptions{}
			o.cpu.Activations, o.cpu.Threads = name, benchThreads()
			r := newRig(b, src, o)
			tokens := story(512, src.Config.Vocab, 3)
			rate(b, 512, func() {
				s := r.seq(512)
				s.step(nil, tokens[:256])
				s.step(nil, tokens[256:])
				s.release()
			})
		})
	}
}

// BenchmarkDecode is 128 tokens one by one after none, for 1 sequence and for 16 at once: tokens per second in all.
func BenchmarkDecode(b *testing.B) {
	src := benchSource(b)
	for _, name := range []string{"int8/1", "int8/4", "int8/16", "f32/1"} {
		b.Run(name, func(b *testing.B) {
			o := rigOptions{}
			acts, n, _ := strings.Cut(name, "/")
			o.cpu.Activations, o.cpu.Threads = acts, benchThreads()
			r := newRig(b, src, o)
			width := map[string]int{"1": 1, "4": 4, "16": 16}[n]
			seqs := make([]*seq, width)
			rate(b, width*128, func() {
				for i := range seqs {
					seqs[i] = r.seq(128)
				}
				for range 128 {
					r.decode(seqs)
				}
				for _, s := range seqs {
					s.release()
				}
			})
		})
	}
}

// BenchmarkDecodeLong is 16 tokens one by one after a prompt of 1,500: attention's share shows.
func BenchmarkDecodeLong(b *testing.B) {
	src := benchSource(b)
	r := newRig(b, src, rigOptions{cpu: cpu.Options{Threads: benchThreads()}})
	s := r.seq(1900)
	s.step(nil, story(1500, src.Config.Vocab, 3))
	rate(b, 16, func() {
		for range 16 {
			r.decode([]*seq{s})
		}
		if s.rows > 1800 {
			b.SkipNow()
		}
	})
}

// decode computes one token of each sequence, with its logits.
func (r *rig) decode(seqs []*seq) {
	r.t.Helper()
	work := make([]model.Work, len(seqs))
	for i, s := range seqs {
		work[i] = s.work(int32(s.rows * 7 % 1000))
	}
	if _, err := model.StepLogits(r.eng, work, 0); err != nil {
		r.t.Fatal(err)
	}
	for i, s := range seqs {
		s.done(work[i])
	}
}

// BenchmarkLoad packs a model's weights for the device: processor seconds for a gigabyte of file.
func BenchmarkLoad(b *testing.B) {
	src := benchSource(b)
	var bytes int64
	for _, t := range src.Tensors {
		bytes += int64(len(t.Data))
	}
	b.ResetTimer()
	start := processSeconds()
	for range b.N {
		dev, err := cpu.New(cpu.Options{Threads: benchThreads()})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := model.LoadWeights(dev, src, nil); err != nil {
			b.Fatal(err)
		}
		if err := dev.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((processSeconds()-start)/float64(b.N)/float64(bytes)*1e9, "cpu-s/GB")
}
