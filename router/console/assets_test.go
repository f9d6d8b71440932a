package console

import (
	"regexp"
	"strings"
	"testing"
)

// The page asks for nothing outside, and brings no script or style that the policy would not let run.
func TestAssetsAreSelfContained(t *testing.T) {
	entries, err := files.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	outside := regexp.MustCompile(`(https?:)?//[a-zA-Z0-9]`)
	inline := regexp.MustCompile(`(?i)<script>|<script [^>]*>[^<]|<style|\sstyle=|\son[a-z]+=|javascript:`)
	seen := 0
	for _, e := range entries {
		b, err := files.ReadFile("assets/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		seen++
		text := strings.ReplaceAll(string(b), `xmlns="http://www.w3.org/2000/svg"`, "")
		if m := outside.FindString(text); m != "" {
			t.Errorf("%s: asks outside: %q", e.Name(), m)
		}
		if strings.HasSuffix(e.Name(), ".html") {
			if m := inline.FindString(text); m != "" {
				t.Errorf("%s: inline: %q", e.Name(), m)
			}
			for _, m := range regexp.MustCompile(`(?:src|href)="/console/assets/([^"]*)"`).FindAllStringSubmatch(text, -1) {
				if _, err := files.ReadFile("assets/" + m[1]); err != nil {
					t.Errorf("%s: %v", e.Name(), err)
				}
			}
		}
		if strings.HasSuffix(e.Name(), ".js") && regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(`).MatchString(text) {
			t.Errorf("%s: makes markup of text", e.Name())
		}
	}
	if seen < 8 {
		t.Errorf("%d files", seen)
	}
	if w := do(begin(t, nil), "GET", "/console", nil); !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") ||
		strings.Contains(w.Header().Get("Content-Security-Policy"), "unsafe") {
		t.Errorf("policy %q", w.Header().Get("Content-Security-Policy"))
	}
}
