package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quire/bus/jet"
	"quire/journal"
	"quire/keys"
	"quire/kvtransfer"
)

// pastOf serves a journal of one request and one that was refused, and gives the flags that reach it.
func pastOf(t *testing.T) (flags []string, ids []string) {
	t.Helper()
	dir := t.TempDir()
	ring, err := keys.Ensure(filepath.Join(dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := jet.Serve(jet.ServerOptions{Addr: "127.0.0.1:0", Data: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	conn, err := jet.Connect(t.Context(), jet.ConnectOptions{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.Streams().EnsureShared(t.Context()); err != nil {
		t.Fatal(err)
	}
	signer, err := ring.Signer(kvtransfer.RoleDecode)
	if err != nil {
		t.Fatal(err)
	}
	w := journal.NewWriter(journal.Config{Bus: conn, Peer: kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 1}, Signer: signer})
	put := func(r journal.Record) {
		if err := w.Append(t.Context(), r); err != nil { // each in a message of its own
			t.Fatal(err)
		}
	}
	put(journal.Record{Facts: journal.Started{Version: "0.1.0", Pages: 8, PageSize: 4}})
	for i, ok := range []bool{true, false} {
		k := kvtransfer.Key{ID: kvtransfer.HandoffID{0xa0 + byte(i), 1}, Attempt: 1}
		ids = append(ids, k.String()[:32])
		pages := journal.Pages{{0, uint64(i + 1)}, {1, uint64(i + 1)}}
		r := func(f journal.Facts) { put(journal.Record{Key: k, Tenant: "acme", Facts: f}) }
		r(journal.Reserved{N: 5, MaxTokens: 3, PageSize: 4, Pages: pages})
		r(journal.Claimed{Prefill: "prefill/p1@1"})
		v := journal.Verdict{Path: "received", OK: ok, N: 5, Sent: 5, Frames: 1, Pages: pages, Written: journal.Spans{{0, 5}}}
		f := journal.Finished{Finish: "stop", Prompt: 5, Output: 2, Read: 6, Rows: 6, Written: v.Written, Pages: 2}
		if !ok {
			v.Sent, v.Written, v.Code, v.Detail = 1, nil, "handoff_count", "token count: reserved 5, manifest 1"
			f = journal.Finished{Code: v.Code, Detail: v.Detail, Prompt: 5, Pages: 2, Quarantined: true}
		}
		r(v)
		if ok {
			r(journal.Witness{Result: "agreed", Read: 5, Written: v.Written, FirstToken: true})
		}
		r(f)
		put(journal.Record{Facts: journal.Zeroed{Pages: journal.Spans{{0, 2}}}})
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return []string{"--nats-url", "nats://" + server.Addr(), "--data", dir}, ids
}

func verb(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(args, streams{in: strings.NewReader(""), out: &out, err: &errs}); code != want {
		t.Errorf("%s: exit code %d, want %d: %s%s", strings.Join(args, " "), code, want, out.String(), errs.String())
	}
	return out.String() + errs.String()
}

// Every verb answers from the live bus and from a bundle, in text and in JSON.
func TestReplayAndAuditVerbs(t *testing.T) {
	live, ids := pastOf(t)
	dir := t.TempDir()
	bundle := filepath.Join(dir, "journal.qjb")
	with := func(words ...string) []string { return append(words, live...) }
	if got := verb(t, exitOK, with("replay", "export", bundle)...); !strings.Contains(got, "messages in") {
		t.Error(got)
	}
	verb(t, exitFailed, with("replay", "export", bundle)...) // it is there
	offline := []string{"--from", bundle, "--data", live[3]}
	for _, from := range [][]string{live, offline} {
		for _, c := range []struct {
			code int
			args []string
			want []string
		}{
			{exitOK, []string{"replay", "list"}, []string{ids[0][:12], ids[1][:12], "acme"}},
			{exitOK, []string{"replay", "list", "--last", "1"}, []string{ids[1][:12]}},
			{exitOK, []string{"replay", "list", "--tenant", "nobody"}, []string{"REQUEST"}},
			{exitOK, []string{"replay", "show", ids[0]}, []string{"admitted 5 rows on 2 pages", "2 cleared and free"}},
			{exitOK, []string{"replay", "show", ids[1][:4]}, []string{"REFUSED      token count: reserved 5, manifest 1", "2 quarantined"}},
			{exitFailed, []string{"replay", "show", "ffff"}, []string{"not in the record of 2 requests"}},
			{exitOK, []string{"replay", "step", ids[1]}, []string{"quarantined; pages total=8 free=6", "free; pages total=8 free=8"}},
			{exitOK, []string{"replay", "page", "1"}, []string{ids[0], ids[1]}},
			{exitOK, []string{"replay", "page", "1", "--at", "#3"}, []string{ids[0]}},
			{exitOK, []string{"replay", "page", "7"}, []string{"nobody has it"}},
			{exitUsage, []string{"replay", "page", "1", "--at", "noon"}, []string{"noon"}},
			{exitOK, []string{"replay", "diff", ids[0], ids[1]}, []string{"rows sent", "the same: "}},
			{exitOK, []string{"audit", "exposure"}, []string{"None of 1 responses"}},
			{exitUsage, []string{"audit", "exposure", "--since", "then"}, []string{"--since then"}},
			{exitOK, []string{"audit", "verify"}, []string{"13 records", "signatures checked", "quarantine"}},
		} {
			got := verb(t, c.code, append(c.args, from...)...)
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("%v: no %q in\n%s", c.args, w, got)
				}
			}
			if c.code == exitOK {
				text := verb(t, exitOK, append(append(c.args, "--json"), from...)...)
				if !json.Valid([]byte(text)) {
					t.Errorf("%v --json: %s", c.args, text)
				}
			}
		}
	}
	name := filepath.Join(dir, "report")
	verb(t, exitOK, append([]string{"audit", "report", "--out", name}, offline...)...)
	if got := verb(t, exitOK, append([]string{"audit", "report", "--check", name + ".json"}, offline...)...); !strings.Contains(got, "signed by this cluster's bus") {
		t.Error(got)
	}
	b, err := os.ReadFile(name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name+".json", bytes.Replace(b, []byte(`"answers":1`), []byte(`"answers":2`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	verb(t, exitFailed, append([]string{"audit", "report", "--check", name + ".json"}, offline...)...)
	if got := verb(t, exitOK, "replay", "list", "--from", bundle, "--data", dir); !strings.Contains(got, "no signature is checked") {
		t.Error(got)
	}
}
