package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// removals take every check out whose cost is asked for: the seal and the digest, the gate, part (a) of the witness, zeroing and the
// journal. What is left answers the same on an honest cluster, and nobody may run it for anything but this. Part (b) of the witness
// stays: it is the step that makes the first token.
var removals = []struct{ file, from, to string }{
	{"kvtransfer/seal/frame.go", `newGCM(key).Seal(dst, nonce(h.Index), plain, frameData(reservationHash, h))`, `append(append(dst, plain...), append(nonce(h.Index), 0, 0, 0, 0)...)`},
	{"kvtransfer/seal/frame.go", `newGCM(key).Seal(message[at:at], nonce(h.Index), message[at:], frameData(reservationHash, h))`, `append(message[at:], append(nonce(h.Index), 0, 0, 0, 0)...)`},
	{"kvtransfer/seal/frame.go", `plain, err := newGCM(key).Open(dst[:0], nonce(h.Index), sealed, frameData(reservationHash, h))`, `plain, err := append(dst[:0], sealed[:len(sealed)-wire.TagSize]...), error(nil)`},
	{"kvtransfer/seal/frame.go", "		h.Write(tags[i][:])\n", "		_ = i\n"},
	{"kvtransfer/gate.go", `func Gate(e Evidence) Verdict { return judge(e, false) }`, `func Gate(e Evidence) Verdict { return Verdict{OK: true} }`},
	{"decode/life_effects.go", `row, err := l.cfg.Engine.WitnessRows(e.View, e.Tokens, e.From)`, `row, err := -1, error(nil)`},
	{"decode/zero.go", `{ return l.cfg.Engine.Zero(pages) }`, `{ return nil }`},
	{"prefill/service_effects.go", `Err: s.cfg.Engine.Zero(fx.Pages)`, `Err: nil`},
	{"journal/writer.go", "func (w *Writer) Put(r Record) error {\n", "func (w *Writer) Put(r Record) error {\n	if true {\n		return nil\n	}\n"},
	{"journal/writer.go", "func (w *Writer) Append(ctx context.Context, r Record) error {\n", "func (w *Writer) Append(ctx context.Context, r Record) error {\n	if true {\n		return nil\n	}\n"},
}

// overlay writes the files without checks into dir and gives the -overlay file. A removal that no longer fits the source is an error.
func overlay(root, dir string) (string, error) {
	replace := map[string]string{}
	for _, r := range removals {
		source := filepath.Join(root, r.file)
		from := source
		if twin, again := replace[source]; again {
			from = twin
		}
		b, err := os.ReadFile(from)
		if err != nil {
			return "", fmt.Errorf("peers: %w", err)
		}
		if n := strings.Count(string(b), r.from); n != 1 {
			return "", fmt.Errorf("peers: %s holds %d times, not once: %s", r.file, n, r.from)
		}
		twin := filepath.Join(dir, strings.ReplaceAll(r.file, "/", "_"))
		if err := os.WriteFile(twin, []byte(strings.Replace(string(b), r.from, r.to, 1)), 0o644); err != nil {
			return "", fmt.Errorf("peers: %w", err)
		}
		replace[source] = twin
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, b, 0o644)
}

// unchecked builds quire without its checks.
func unchecked(ctx context.Context, dir string) (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("peers: %w", err)
	}
	file, err := overlay(root, dir)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "quire-unchecked")
	_, err = output(ctx, nil, "go", "build", "-overlay", file, "-o", bin, "./cmd/quire")
	return bin, err
}

// checkSides are quire, and quire without its checks: the served rows alone.
func (o options) checkSides(bin string) []side {
	served := func(quire string) func(context.Context) (figures, error) {
		return func(ctx context.Context) (figures, error) {
			f := figures{}
			return f, o.serve(ctx, f, "/ready", func(addr, dir string) *exec.Cmd {
				return exec.CommandContext(ctx, quire, "up", "--model", o.model, "--threads", strconv.Itoa(o.threads), "--nats", "127.0.0.1:0", "--http", addr, "--data", dir)
			})
		}
	}
	return []side{{name: "quire", ours: true, measure: served(o.quire)}, {name: "without checks", measure: served(bin)}}
}
