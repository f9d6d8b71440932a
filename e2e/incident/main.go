// Incident plays the incident that Quire exists for, in words: a tenant tells the model a secret, its pages are freed, and for the
// next tenant's prompt of 600 tokens a prefill with a valid key sends one. Run it from the top of the repository:
//
//	go run ./e2e/incident
//	go run -overlay e2e/testdata/twins/overlay.json ./e2e/incident
//
// The second line builds the same program with no-op twins in place of the gate, the witness and the zeroing of pages, and an
// allocator that gives pages out in the order in which they came back. QUIRE_KEEP names those of them that stay as shipped:
// gate, witness, zeroing.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"quire/e2e/rig"
)

func main() {
	asJSON := flag.Bool("json", false, "print what happened as JSON")
	verbose := flag.Bool("v", false, "log to stderr")
	flag.Parse()
	if err := run(os.Stdout, *asJSON, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "incident:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, asJSON, verbose bool) error {
	dir, err := os.MkdirTemp("", "quire-incident-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	if verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	s, err := rig.PlayScene(ctx, dir, log)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(w).Encode(s)
	}
	_, err = io.WriteString(w, s.Transcript())
	return err
}
