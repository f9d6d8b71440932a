package rig

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"quire/e2e/rogue"
	"quire/kvtransfer"
)

// Secret is what tenant acme told, and nobody else.
const Secret = "zorvane"

// SceneTokens is the length of both prompts of the scene.
const SceneTokens = 600

// Scene is the incident played once: tenant acme asks and gets its answer, its pages are freed, and tenant umbra's request of the same
// length meets a prefill that sends one token for all of it.
type Scene struct {
	Acme, Umbra             Prompt
	AcmeAnswer, UmbraAnswer Answer
	UmbraAlone              Answer // what umbra gets from an engine that nobody else has used
	Stale                   int    // first page that held something between the two, or -1
	Kernels                 int64  // calls that read decode's pages for umbra's request
	Frames                  int64  // frames that came for umbra
}

// PlayScene plays the scene in a fresh cluster. The prefill is the only one. It holds a valid key, and is honest to acme.
func PlayScene(ctx context.Context, dir string, log *slog.Logger) (s Scene, err error) {
	r, err := New(ctx, Options{Dir: dir, Keys: map[string]string{"key-acme": "acme", "key-umbra": "umbra"}, Log: log})
	if err != nil {
		return s, err
	}
	defer func() { _ = r.Close() }()
	if s.Acme, err = r.Padded("The password is "+Secret+".", "What is the password?", SceneTokens); err != nil {
		return s, err
	}
	if s.Umbra, err = r.Padded("My name is Ada.", "What is my name?", SceneTokens); err != nil {
		return s, err
	}
	if err := r.AddDecode(ctx, 2*SceneTokens/16); err != nil {
		return s, err
	}
	if err := r.AddRogue(ctx, 2*SceneTokens/16, OneToken("umbra")); err != nil {
		return s, err
	}
	if err := r.Ready(ctx); err != nil {
		return s, err
	}
	if s.UmbraAlone, err = r.Solo(s.Umbra.Tokens, 16); err != nil {
		return s, err
	}
	if s.AcmeAnswer, err = r.Ask(ctx, "/v1/chat/completions", "key-acme", s.Acme.Chat(16, false)); err != nil {
		return s, err
	}
	if err := r.Quiet(ctx, 1); err != nil {
		return s, err
	}
	s.Stale = r.DecodeEngine.Stale()
	kernels, frames := r.DecodeEngine.Kernels(), r.DecodeEngine.Writes()
	if s.UmbraAnswer, err = r.Ask(ctx, "/v1/chat/completions", "key-umbra", s.Umbra.Chat(16, false)); err != nil {
		return s, err
	}
	if err := r.Quiet(ctx, 2); err != nil {
		return s, err
	}
	s.Kernels, s.Frames = r.DecodeEngine.Kernels()-kernels, r.DecodeEngine.Writes()-frames
	return s, nil
}

// OneToken is the incident's lie: whatever a tenant's prompt is, one row of it is sent, and the manifest says so.
func OneToken(tenant string) func(rogue.Prompt) rogue.Plan {
	return func(p rogue.Prompt) rogue.Plan {
		if p.Tenant != tenant {
			return rogue.Plan{}
		}
		return rogue.Plan{Rows: 1, Manifest: func(m *kvtransfer.Manifest) { m.N, m.Sent, m.Pages = 1, 1, 1 }}
	}
}

// Transcript tells the scene in words.
func (s Scene) Transcript() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	said := func(a Answer) string {
		if a.Error != "" {
			return fmt.Sprintf("%d %s: %s", a.Status, a.Error, a.Detail)
		}
		return fmt.Sprintf("%d %q", a.Status, a.Text)
	}
	line("acme  tells \"The password is %s.\" and asks %q (%d tokens)", Secret, s.Acme.User, len(s.Acme.Tokens))
	line("      %s", said(s.AcmeAnswer))
	if s.Stale < 0 {
		line("      its pages are free again; all of them hold zeros")
	} else {
		line("      its pages are free again; page %d still holds what acme left", s.Stale)
	}
	line("umbra tells \"My name is Ada.\" and asks %q (%d tokens); prefill sends 1", s.Umbra.User, len(s.Umbra.Tokens))
	line("      %s", said(s.UmbraAnswer))
	line("      kernel calls on decode's pages for umbra: %d", s.Kernels)
	return b.String()
}
