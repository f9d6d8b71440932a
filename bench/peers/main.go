// Command peers measures quire beside llama.cpp: the same model file, threads and prompts, in turns, and prints ratios.
//
//	go run ./bench/peers -quire ./quire -m FILE -llama-bench PATH -llama-batched-bench PATH -llama-server PATH
//	go run ./bench/peers -quire ./quire -m FILE -checks    # beside quire without its checks: what they cost
//
// Binaries that are not named are left out with their rows. Each round runs everything once, beginning with another one than the round
// before; a ratio is taken within its round, and the median of the rounds is printed. llama.cpp runs twice in each round, as it is
// and with its weights in huge pages (no mmap, malloc advised); the faster of both is what quire is compared with.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
)

// options are the flags.
type options struct {
	quire   string // our binary
	bench   string // llama-bench
	batched string // llama-batched-bench
	server  string // llama-server
	noMap   string // flags that make llama.cpp read weights rather than map them
	model   string
	threads int
	rounds  int
	prompt  int  // tokens of the prefill row
	output  int  // tokens that the decode rows generate
	batch   int  // sequences of the batch row, and clients of the served row
	served  int  // requests of the served row
	checks  bool // beside quire without its checks
	json    string
}

func main() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.quire, "quire", "./quire", "our binary")
	flag.StringVar(&o.bench, "llama-bench", "", "llama.cpp's llama-bench: a prompt, and one sequence")
	flag.StringVar(&o.batched, "llama-batched-bench", "", "llama.cpp's llama-batched-bench: several sequences")
	flag.StringVar(&o.server, "llama-server", "", "llama.cpp's llama-server: the served row")
	flag.StringVar(&o.noMap, "llama-no-mmap", "-lm none", "flags by which llama.cpp reads weights into memory; builds of early 2026: --no-mmap, and -mmp 0 for llama-bench")
	flag.StringVar(&o.model, "m", "", "GGUF file")
	flag.IntVar(&o.threads, "t", 2, "threads")
	flag.IntVar(&o.rounds, "r", 5, "rounds, after one that is not counted")
	flag.IntVar(&o.prompt, "p", 512, "tokens of the prompt")
	flag.IntVar(&o.output, "n", 64, "tokens that are decoded")
	flag.IntVar(&o.batch, "b", 16, "sequences at once")
	flag.IntVar(&o.served, "served", 48, "requests of the served row, of 180 tokens in")
	flag.BoolVar(&o.checks, "checks", false, "compare with a build without seal, digest, gate, witness (a), zeroing and journal; from the module's root")
	flag.StringVar(&o.json, "json", "", "write every figure to a file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options) error {
	if o.model == "" || o.rounds < 1 || o.checks == (o.bench+o.batched+o.server != "") {
		return fmt.Errorf("peers: a model (-m), rounds (-r) and either -checks or at least one of llama.cpp's binaries are needed")
	}
	sides := o.sides()
	if o.checks {
		dir, err := os.MkdirTemp("", "quire-unchecked-")
		if err != nil {
			return fmt.Errorf("peers: %w", err)
		}
		defer os.RemoveAll(dir)
		bin, err := unchecked(ctx, dir)
		if err != nil {
			return err
		}
		sides = o.checkSides(bin)
	}
	r, err := compare(ctx, sides, o.rounds, os.Stderr)
	if err != nil {
		return err
	}
	r.Model, r.Threads = o.model, o.threads
	if o.json != "" {
		b, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(b, '\n'), 0o644); err != nil {
			return fmt.Errorf("peers: %w", err)
		}
	}
	return r.print(os.Stdout)
}
