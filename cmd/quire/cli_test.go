package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// quire runs the program in this process with the given environment alone.
func quire(t *testing.T, env map[string]string, in string, args ...string) (out, errs string, code int) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "QUIRE_") || name == "PORT" {
			t.Setenv(name, "") // remembers the value for the end of the test
			os.Unsetenv(name)
		}
	}
	for k, v := range env {
		t.Setenv(k, v)
	}
	var o, e bytes.Buffer
	code = run(args, streams{in: strings.NewReader(in), out: &o, err: &e})
	return o.String(), e.String(), code
}

func config(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quire.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// value finds a flag's line in what --print-config prints.
func value(out, flag string) string {
	for _, line := range strings.Split(out, "\n") {
		if name, rest, ok := strings.Cut(line, " "); ok && name == flag {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	return "(not there)"
}

func TestPrecedence(t *testing.T) {
	file := config(t, `{"page_size": 8, "kv-pages": 100, "max-model-len": 900, "http": "127.0.0.1:1", "api-key": ["a=one", "b=two"]}`)
	out, errs, code := quire(t, map[string]string{"QUIRE_KV_PAGES": "200", "QUIRE_HTTP": "127.0.0.1:2", "QUIRE_CONFIG": file}, "",
		"up", "--http", "127.0.0.1:3", "--print-config")
	if code != 0 || errs != "" {
		t.Fatalf("%d: %s", code, errs)
	}
	for flag, want := range map[string]string{
		"http":                 "127.0.0.1:3 # flag",
		"kv-pages":             "200 # env QUIRE_KV_PAGES",
		"page-size":            "8 # file " + file,
		"max-model-len":        "900 # file " + file,
		"api-key":              "[***=one,***=two] # file " + file,
		"data":                 ".quire # default",
		"log-format":           "text # default",
		"chunked-prefill-size": "0 # default",
	} {
		if got := value(out, flag); got != want {
			t.Errorf("%s: want %q, got %q", flag, want, got)
		}
	}
}

func TestPrintConfigMasksSecrets(t *testing.T) {
	out, _, code := quire(t, map[string]string{"QUIRE_NATS_PASSWORD": "hunter2"}, "", "up", "--api-key", "sk-secret=acme",
		"--nats-url", "nats://me:pass@bus.example:4222", "--nats-token", "tok", "--admin-key", "long-enough-admin=tail", "--print-config")
	if code != 0 {
		t.Fatal(code)
	}
	for _, secret := range []string{"sk-secret", "hunter2", ":pass@", "tok\n", " tok ", "long-enough", "tail"} {
		if strings.Contains(out, secret) {
			t.Errorf("%q is printed", secret)
		}
	}
	for _, want := range []string{"***=acme", "nats://me:***@bus.example:4222"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed", want)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"unknown key", `{"max-model-length": 1}`, `unknown key "max-model-length"`},
		{"misspelt key", `{"kv_page": 1}`, "did you mean kv-pages?"},
		{"not JSON", `page-size: 8`, "one JSON object"},
		{"two objects", `{} {}`, "something follows"},
		{"same key twice", `{"page-size": 1, "page_size": 2}`, "is there twice"},
		{"an object", `{"http": {"port": 1}}`, "is an object"},
		{"a wrong type", `{"page-size": "many"}`, "page-size"},
		{"a bad choice", `{"log-format": "xml"}`, "log-format"},
		{"too large", `{"x":"` + strings.Repeat("x", maxConfig) + `"}`, "more than"},
		{"per-run flags are none", `{"print-config": true}`, "unknown key"},
	}
	for _, c := range cases {
		_, errs, code := quire(t, nil, "", "up", "--config", config(t, c.text), "--print-config")
		if code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%s: want %d and %q, got %d and %q", c.name, exitUsage, c.want, code, errs)
		}
	}
	if _, errs, code := quire(t, nil, "", "up", "--config=/does/not/exist"); code != exitUsage || !strings.Contains(errs, "/does/not/exist") {
		t.Errorf("a file that is not there: %d, %q", code, errs)
	}
}

func TestUnknown(t *testing.T) {
	for _, args := range [][]string{{"up", "--page-sise", "8"}, {"serve"}, {"up", "--page-size", "x"}, {"up", "--page-size", "5000"},
		{"up", "--max-model-len", "lots"}, {"up", "--prefill", "0"}, {"up", "--http", "8080"}, {"up", "--lease", "1ms"}, {"up", "--max-open-requests", "0"}, {"up", "--max-queued-requests", "-1"},
		{"up", "--nats-url", "nats://"}, {"router", "--id", "Not A Slug"}, {"up", "-f", "/does/not/exist"}} {
		_, errs, code := quire(t, nil, "", args...)
		if code != exitUsage || errs == "" {
			t.Errorf("%v: want exit code %d and a reason, got %d and %q", args, exitUsage, code, errs)
		}
	}
}

func TestStrayEnvironmentIsNamed(t *testing.T) {
	_, errs, code := quire(t, map[string]string{"QUIRE_MAX_MODEL_LENGTH": "1", "QUIRE_PAGE_SIZ": "8", "QUIRE_SERVICE_HOST": "10.0.0.1", "QUIRE_PORT": "tcp://10.0.0.1:80"}, "",
		"up", "--print-config")
	if code != 0 || !strings.Contains(errs, "QUIRE_MAX_MODEL_LENGTH in the environment is no flag") || !strings.Contains(errs, "did you mean QUIRE_PAGE_SIZE?") {
		t.Errorf("%d: %q", code, errs)
	}
	if strings.Contains(errs, "SERVICE_HOST") || strings.Contains(errs, "QUIRE_PORT ") {
		t.Errorf("what Kubernetes sets is named: %q", errs)
	}
}

func TestListen(t *testing.T) {
	cases := []struct {
		address, port string
		chosen        bool
		want          string
	}{
		{"127.0.0.1:8080", "", false, "127.0.0.1:8080"},
		{"127.0.0.1:8080", "5100", false, "127.0.0.1:5100"},
		{"127.0.0.1:8080", "5100", true, "127.0.0.1:8080"},
		{"[::1]:0", "", true, "[::1]:0"},
		{":8080", "", true, ":8080"},
		{"127.0.0.1:8080", "http", false, ""},
		{"127.0.0.1", "", true, ""},
		{"127.0.0.1:70000", "", true, ""},
	}
	for _, c := range cases {
		t.Setenv("PORT", c.port)
		src := origins{"http": "default"}
		if c.chosen {
			src["http"] = "flag"
		}
		got, err := listen("http", c.address, src)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
	}
}

func TestAPIKeys(t *testing.T) {
	got, err := apiKeys([]string{"sk-1=acme", "a=b=c=beta-2"})
	if err != nil || got["sk-1"] != "acme" || got["a=b=c"] != "beta-2" {
		t.Fatalf("%v, %v", got, err)
	}
	for _, bad := range [][]string{{"key"}, {"=acme"}, {"key="}, {"key=Acme"}, {"key=a.b"}, {"k=a", "k=b"}, {"k=" + strings.Repeat("a", 33)}} {
		if got, err := apiKeys(bad); err == nil {
			t.Errorf("%v: want an error, got %v", bad, got)
		} else if strings.Contains(err.Error(), "key=") && strings.Contains(err.Error(), bad[0]) {
			t.Errorf("the key is in the error: %v", err)
		}
	}
}

func TestIdentity(t *testing.T) {
	t.Setenv("PS", "prefill_1.2")
	if id, err := identity("prefill", ""); err != nil || id != "prefill-1-2" {
		t.Errorf("from PS: %q, %v", id, err)
	}
	if id, err := identity("prefill", "p7"); err != nil || id != "p7" {
		t.Errorf("given: %q, %v", id, err)
	}
	t.Setenv("PS", "")
	a, err1 := identity("decode", "")
	b, err2 := identity("decode", "")
	if err1 != nil || err2 != nil || a == b || !slug(a) || !strings.HasPrefix(a, "decode-") {
		t.Errorf("made up: %q, %q, %v, %v", a, b, err1, err2)
	}
}

// Every flag of every verb has a variable, a help text, and a name that no other flag of the verb has in a config file.
func TestEveryFlagIsAVariableAndAKey(t *testing.T) {
	k, err := kong.New(&cli{}, kong.PostBuild(nameEnv))
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range k.Model.Children {
		seen := map[string]string{}
		for _, f := range verb.Flags {
			if f.Hidden || f.Name == "help" {
				continue
			}
			if len(f.Tag.Envs) != 1 || !strings.HasPrefix(f.Tag.Envs[0], "QUIRE_") {
				t.Errorf("%s --%s: variables %v", verb.Name, f.Name, f.Tag.Envs)
			}
			if f.Help == "" {
				t.Errorf("%s --%s has no help", verb.Name, f.Name)
			}
			for _, key := range configKeys(f) {
				if seen[key] != "" {
					t.Errorf("%s: key %s is both --%s and --%s", verb.Name, key, seen[key], f.Name)
				}
				seen[key] = f.Name
			}
		}
	}
}

func TestScriptsMayRelyOnTheseFlags(t *testing.T) {
	_, errs, code := quire(t, nil, "", "up", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--data", "d", "--model", "m", "--max-model-len", "auto",
		"--page-size", "16", "--kv-pages", "64", "--prefill", "2", "--decode", "2", "--api-key", "K=tenant", "--log-format", "json", "--print-config")
	if code != 0 {
		t.Fatal(errs)
	}
	for _, verb := range []string{"up", "router", "prefill", "decode", "chat", "models", "doctor"} {
		if _, errs, code := quire(t, nil, "", verb, "--nats-url", "nats://127.0.0.1:1,nats://127.0.0.1:2", "--print-config"); code != 0 {
			t.Errorf("%s --nats-url: %s", verb, errs)
		}
	}
	for _, alias := range []string{"--model-path=m", "--context-length=5", "--block-size=4", "--num-pages=3", "--max-num-seqs=2", "--kv-cache-dtype=f32", "--host=::1", "--port=9"} {
		if _, errs, code := quire(t, nil, "", "up", alias, "--print-config"); code != 0 {
			t.Errorf("%s: %s", alias, errs)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	out, _, code := quire(t, nil, "", "version")
	if code != 0 || !strings.HasPrefix(out, "quire "+version) {
		t.Errorf("%d, %q", code, out)
	}
	out, _, code = quire(t, nil, "")
	if code != 0 || !strings.Contains(out, "quire up") {
		t.Errorf("without arguments: %d, %q", code, out)
	}
	out, _, code = quire(t, nil, "", "up", "--help")
	if code != 0 || !strings.Contains(out, "--max-model-len") || !strings.Contains(out, "$QUIRE_MAX_MODEL_LEN") {
		t.Errorf("up --help: %d, %q", code, out)
	}
}
