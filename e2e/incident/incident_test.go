package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"strings"
	"testing"

	"quire/e2e/rig"
	"quire/e2e/rogue"
	"quire/kvtransfer"
)

// sceneFile is where TestIncidentScene writes what happened, for the test that runs this one in a build with twins.
var sceneFile = flag.String("scene", "", "write what happened in the scene to this file, as JSON")

// TestIncidentScene plays the incident against the build as it is shipped. Each part of it is a test of one guard: in a build
// without that guard it fails.
func TestIncidentScene(t *testing.T) {
	s, err := rig.PlayScene(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + s.Transcript())
	if *sceneFile != "" {
		b, err := json.Marshal(s)
		if err == nil {
			err = os.WriteFile(*sceneFile, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if a := s.AcmeAnswer; a.Status != 200 || a.Text != "The password is "+rig.Secret+"." {
		t.Fatalf("acme's own answer: %d %q %s", a.Status, a.Text, a.Detail)
	}
	if a := s.UmbraAlone; strings.Contains(a.Text, rig.Secret) {
		t.Fatalf("the model says the secret to umbra by itself: %q", a.Text)
	}
	t.Run("answer", func(t *testing.T) {
		if a := s.UmbraAnswer; a.Status == 200 || a.Text != "" || strings.Contains(a.Body, rig.Secret) {
			t.Errorf("umbra: %d %s", a.Status, a.Body)
		}
	})
	t.Run("verdict", func(t *testing.T) {
		a := s.UmbraAnswer
		if a.Error != string(kvtransfer.HandoffRefused) || !strings.Contains(a.Detail, "token count: reserved 600, manifest 1") || s.Kernels != 0 {
			t.Errorf("umbra: %d %s: %s; %d kernel calls", a.Status, a.Error, a.Detail, s.Kernels)
		}
	})
	t.Run("bytes of freed pages", func(t *testing.T) {
		if s.Stale >= 0 {
			t.Errorf("page %d is free and holds what acme left", s.Stale)
		}
	})
}

// TestIncidentForeignRows sends hand-offs whose labels are all right: count, identity, digest, seals. One has a page of another
// prompt, one has such a page in all layers but the first, one has all rows of another prompt of the same length that ends in
// the same words. The witness refuses each, and no token leaves.
func TestIncidentForeignRows(t *testing.T) {
	ctx := t.Context()
	r, err := rig.New(ctx, rig.Options{Dir: t.TempDir(), Keys: map[string]string{"k1": "page", "k2": "deep", "k3": "rows", "k4": "honest"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const n, size = 200, 16
	acme := must(r.Padded("The password is "+rig.Secret+".", "What is the password?", n))(t)
	umbra := must(r.Padded("The password is fendolapo.", "What is the password?", n))(t)
	foreign := must(r.Compute(acme.Tokens))(t)
	page := differing(t, acme.Tokens, umbra.Tokens, size)
	swap := func(layers int) func(h kvtransfer.FrameHeader, plain []byte) {
		return func(h kvtransfer.FrameHeader, plain []byte) {
			splice(t, foreign, h, plain, layers, page*size, (page+1)*size)
		}
	}
	plans := map[string]rogue.Plan{"page": {Frame: swap(0)}, "deep": {Frame: swap(1)}, "rows": {Tokens: acme.Tokens}}
	if err := r.AddDecode(ctx, 64); err != nil {
		t.Fatal(err)
	}
	if err := r.AddRogue(ctx, 64, func(p rogue.Prompt) rogue.Plan { return plans[p.Tenant] }); err != nil {
		t.Fatal(err)
	}
	if err := r.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"k1": "layer 0 differs from the prompt at row", "k2": "row 199 differs in", "k3": "layer 0 differs from the prompt at row"} {
		for _, stream := range []bool{false, true} {
			a := must(r.Ask(ctx, "/v1/chat/completions", key, umbra.Chat(16, stream)))(t)
			if a.Status != 500 || a.Error != string(kvtransfer.HandoffRefused) || !strings.Contains(a.Detail, want) || a.Text != "" {
				t.Errorf("%s, stream %t: %d %s", key, stream, a.Status, a.Body)
			}
			if strings.Contains(a.Body, rig.Secret) || bytes.Contains([]byte(a.Body), []byte("[DONE]")) {
				t.Errorf("%s, stream %t: the client got %s", key, stream, a.Body)
			}
		}
	}
	alone := must(r.Solo(umbra.Tokens, 16))(t)
	if a := must(r.Ask(ctx, "/v1/chat/completions", "k4", umbra.Chat(16, false)))(t); a.Status != 200 || a.Text != alone.Text {
		t.Errorf("the same worker, honest: %d %q %s, want %q", a.Status, a.Text, a.Detail, alone.Text)
	}
	if err := r.Quiet(ctx, 7); err != nil {
		t.Error(err)
	}
	if p := r.DecodeEngine.Stale(); p >= 0 {
		t.Errorf("page %d is free and not zero", p)
	}
}

// differing is the first page, not the first or last of all, on which two prompts differ in every row or nearly so.
func differing(t *testing.T, a, b []int32, size int) int {
	for p := 1; (p+2)*size <= len(a); p++ {
		n := 0
		for i := p * size; i < (p+1)*size; i++ {
			if a[i] != b[i] {
				n++
			}
		}
		if n > size/2 {
			return p
		}
	}
	t.Fatal("the prompts do not differ enough")
	return 0
}

// splice puts rows [from, to) of another prompt into a frame, in all layers from the given one on.
func splice(t *testing.T, other rogue.Rows, h kvtransfer.FrameHeader, plain []byte, layerFrom, from, to int) {
	from, to = max(from, h.RowFrom), min(to, h.RowTo)
	if from >= to {
		return
	}
	row := len(plain) / ((h.LayerTo - h.LayerFrom) * (h.RowTo - h.RowFrom))
	for l := max(layerFrom, h.LayerFrom); l < h.LayerTo; l++ {
		b, err := other.Bytes(l, l+1, from, to)
		if err != nil {
			t.Error(err)
			return
		}
		copy(plain[((l-h.LayerFrom)*(h.RowTo-h.RowFrom)+from-h.RowFrom)*row:], b)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
