package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asked is one answered request of tenant acme, whose content is on the tape.
func asked(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", cluster.http+"/v1/completions",
		strings.NewReader(`{"prompt":"The bird sat on the wall and","temperature":1.1,"max_tokens":24,"ignore_eos":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+otherKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var body struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil || res.StatusCode != 200 {
		t.Fatalf("%d, %v", res.StatusCode, err)
	}
	return body.ID
}

// eventually runs a line until it prints what is wanted: journal and tape are written beside the answer, not before it.
func eventually(t *testing.T, line, want string) string {
	t.Helper()
	late := time.Now().Add(time.Minute)
	for {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Env, cmd.Dir = clean(filepath.Dir(nats)), t.TempDir()
		out, err := cmd.CombinedOutput()
		if err == nil && strings.Contains(string(out), want) {
			return string(out)
		}
		if time.Now().After(late) {
			t.Fatalf("%s: no %q, %v\n%s", line, want, err, out)
		}
	}
}

// contains fails for every text that is not there.
func contains(t *testing.T, out string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// What `nats stream backup` writes answers every question, on a machine without the cluster; what a request was is computed again
// from backups of the tape and its keys.
func TestReplayFromBackups(t *testing.T) {
	id, dir := asked(t), t.TempDir()
	eventually(t, fmt.Sprintf("quire replay run %s --frames --nats-url %s --data %s", id, cluster.nats, cluster.data), "identical: 24 tokens")
	for stream, name := range map[string]string{"QUIRE_JOURNAL": "journal", "QUIRE_TAPE": "tape", "KV_QUIRE_TAPE_KEYS": "tape-keys"} {
		shell(t, fmt.Sprintf("nats -s %s stream backup %s %s --no-progress", cluster.nats, stream, filepath.Join(dir, name)))
	}
	from := fmt.Sprintf(" --from %s/journal --keys %s/keys --nats-url nats://127.0.0.1:1", dir, cluster.data)
	contains(t, shell(t, "quire replay list"+from), "acme", "length")
	contains(t, shell(t, "quire replay show "+id+from), "admitted ", "the first token leaves", "answered  length, 24 tokens")
	contains(t, shell(t, "quire replay step "+id+from), "pages total=", "finished  length, 24 tokens")
	contains(t, shell(t, "quire audit exposure"+from), "None of ")
	contains(t, shell(t, "quire audit verify"+from+" || test $? = 4"), "signatures checked", "ok  gate")
	tape := fmt.Sprintf(" --tape-from %s/tape --tape-keys %s/tape-keys", dir, dir)
	contains(t, shell(t, "quire replay run "+id+from+tape), "identical: 24 tokens", "logits of 24 of them, bit for bit")
	contains(t, shell(t, "quire replay run "+id+" --frames"+from+tape), "gate: admitted; witness: agreed", "identical: 24 tokens")
	// From backups into one file, and from there again.
	shell(t, fmt.Sprintf("quire replay export %s/all.qjb --with-tape --tape-from %s/tape%s", dir, dir, from))
	contains(t, shell(t, fmt.Sprintf("quire replay run %s --frames --from %s/all.qjb --keys %s/keys --tape-keys %s/tape-keys --nats-url nats://127.0.0.1:1", id, dir, cluster.data, dir)),
		"identical: 24 tokens")
}

// The journal is a stream as any: it is viewed, read by sequence, replayed at its own pace, mirrored; nobody takes anything out.
func TestJournalIsAStream(t *testing.T) {
	id := asked(t)
	on := "nats -s " + cluster.nats + " "
	eventually(t, fmt.Sprintf("quire replay show %s --nats-url %s --data %s", id, cluster.nats, cluster.data), "answered  length, 24 tokens")
	// It wants a terminal, and a key before the second page.
	contains(t, shell(t, fmt.Sprintf("timeout 20 script -qec '%sstream view QUIRE_JOURNAL 5' /dev/null </dev/null || true", on)), `"kind":"started"`)
	contains(t, shell(t, on+"stream get QUIRE_JOURNAL 1"), "quire.journal.started.", "Quire-Signature", `"kind":"started"`)
	contains(t, shell(t, on+"stream info QUIRE_JOURNAL"), "Limits", "File")

	shell(t, on+"consumer add QUIRE_JOURNAL pace --pull --deliver all --replay original --ack none --filter 'quire.journal.started.>' --defaults")
	contains(t, shell(t, on+"consumer next QUIRE_JOURNAL pace --count 2 --raw"), `"kind":"started"`)
	contains(t, shell(t, on+"consumer info QUIRE_JOURNAL pace"), "Original")

	shell(t, on+"stream add JOURNAL_COPY --mirror QUIRE_JOURNAL --storage file --defaults")
	dir := t.TempDir()
	eventually(t, fmt.Sprintf("rm -rf %s/copy; %sstream backup JOURNAL_COPY %s/copy --no-progress && quire replay show %s --from %s/copy --keys %s/keys", dir, on, dir, id, dir, cluster.data),
		"answered  length, 24 tokens")

	for _, line := range []string{"stream purge QUIRE_JOURNAL -f", "stream rmm QUIRE_JOURNAL 1 -f", "stream edit QUIRE_JOURNAL --no-deny-delete -f"} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", on+line)
		cmd.Env = clean(filepath.Dir(nats))
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("nats %s: %s", line, out)
		}
	}
	contains(t, shell(t, on+"stream get QUIRE_JOURNAL 1"), `"kind":"started"`)

	// More may be kept, for longer.
	shell(t, on+"stream edit QUIRE_JOURNAL --max-bytes 2GB --max-age 1y -f")
	contains(t, shell(t, fmt.Sprintf("quire doctor --nats-url %s --data %s || true", cluster.nats, cluster.data)), "3 streams, all as they should be")
}
