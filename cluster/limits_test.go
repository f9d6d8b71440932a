package cluster

import (
	"strings"
	"testing"
)

func TestLimit(t *testing.T) {
	p := func(pages int) WorkerInfo { return WorkerInfo{"prefill", "p1", pages, 16} }
	d := func(pages int) WorkerInfo { return WorkerInfo{"decode", "d1", pages, 16} }
	cases := []struct {
		name            string
		maxLen, context int
		workers         []WorkerInfo
		want            int
		by, err         string
	}{
		{"auto: the model", 0, 2048, []WorkerInfo{p(512), d(1024)}, 2048, "model context", ""},
		{"auto: a prefill pool", 0, 2048, []WorkerInfo{p(40), d(1024)}, 640, "prefill pool of p1", ""},
		{"auto: a decode pool", 0, 2048, []WorkerInfo{p(40), d(20)}, 320, "decode pool of d1", ""},
		{"auto: exactly the context", 0, 2048, []WorkerInfo{p(128), d(128)}, 2048, "model context", ""},
		{"explicit and smaller", 1000, 2048, []WorkerInfo{p(512), d(1024)}, 1000, "--max-model-len", ""},
		{"explicit and equal", 2048, 2048, []WorkerInfo{p(128), d(128)}, 2048, "model context", ""},
		{"larger than the model", 2049, 2048, []WorkerInfo{p(512), d(1024)}, 0, "", "--max-model-len 2049: the model takes 2048"},
		{"larger than a pool by one", 641, 2048, []WorkerInfo{p(40), d(1024)}, 0, "", "--max-model-len 641: the prefill pool of p1 holds 640 tokens (40 pages of 16); raise --kv-pages to 41"},
		{"larger than the decode pool", 2048, 2048, []WorkerInfo{p(512), d(100)}, 0, "", "the decode pool of d1 holds 1600 tokens"},
		{"a router alone", 0, 2048, nil, 2048, "model context", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, by, err := limit(c.maxLen, c.context, c.workers)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("want an error with %q, got %v", c.err, err)
				}
				return
			}
			if err != nil || got != c.want || by != c.by {
				t.Fatalf("want %d by %q, got %d by %q, error %v", c.want, c.by, got, by, err)
			}
		})
	}
}

func TestPages(t *testing.T) {
	o := PoolOptions{PageSize: 16}
	s := sizing{context: 2048, bytesPerRow: 1280, memory: 8 << 30, workers: 1}
	if got := s.pages(o, prefillContexts, prefillShare); got != 512 {
		t.Errorf("four contexts of 2048 in pages of 16: want 512, got %d", got)
	}
	s.memory = 8 << 20 // 1 MiB for prefill: 819 rows, 51 whole pages
	if got := s.pages(o, prefillContexts, prefillShare); got != 51 {
		t.Errorf("bounded by memory: want 51, got %d", got)
	}
	s.workers = 2
	if got := s.pages(o, prefillContexts, prefillShare); got != 25 {
		t.Errorf("memory shared by two: want 25, got %d", got)
	}
	s.memory = 1
	if got := s.pages(o, prefillContexts, prefillShare); got != 1 {
		t.Errorf("never none: want 1, got %d", got)
	}
	o.Pages = 7
	if got := s.pages(o, prefillContexts, prefillShare); got != 7 {
		t.Errorf("an explicit number is taken: want 7, got %d", got)
	}
}

func TestExposure(t *testing.T) {
	key := map[string]string{"k": "a"}
	cases := []struct {
		name string
		o    Options
		err  string
	}{
		{"loopback", Options{Door: DoorOptions{HTTP: "127.0.0.1:8080"}, Bus: BusOptions{Listen: "127.0.0.1:4222"}}, ""},
		{"localhost and ::1", Options{Door: DoorOptions{HTTP: "localhost:8080"}, Bus: BusOptions{Listen: "[::1]:0"}}, ""},
		{"http open, no key", Options{Door: DoorOptions{HTTP: "0.0.0.0:8080"}, Bus: BusOptions{Listen: "127.0.0.1:4222"}}, "give --api-key"},
		{"http on all addresses", Options{Door: DoorOptions{HTTP: ":8080"}, Bus: BusOptions{Listen: "127.0.0.1:4222"}}, "give --api-key"},
		{"http open, a key", Options{Door: DoorOptions{HTTP: "0.0.0.0:8080", Keys: key}, Bus: BusOptions{Listen: "127.0.0.1:4222"}}, ""},
		{"insecure", Options{Door: DoorOptions{HTTP: "0.0.0.0:1", Insecure: true}, Bus: BusOptions{Listen: "0.0.0.0:4222"}}, ""},
		{"remote nats, nothing to show", Options{Door: DoorOptions{HTTP: "127.0.0.1:1"}, Bus: BusOptions{URLs: []string{"nats://bus.example:4222"}}}, "no credentials for it"},
		{"remote nats, credentials", Options{Door: DoorOptions{HTTP: "127.0.0.1:1"}, Bus: BusOptions{URLs: []string{"bus.example"}, Creds: "x"}}, ""},
		{"remote nats, user in the URL", Options{Door: DoorOptions{HTTP: "127.0.0.1:1"}, Bus: BusOptions{URLs: []string{"nats://u:p@bus.example"}}}, ""},
		{"local nats", Options{Door: DoorOptions{HTTP: "127.0.0.1:1"}, Bus: BusOptions{URLs: []string{"nats://127.0.0.1:4222/"}}}, ""},
	}
	for _, c := range cases {
		err := c.o.checkExposure(true)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: want %q, got %v", c.name, c.err, err)
		}
	}
}
