package browser

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// ask sends a long request and gives a function that ends it.
func ask(t *testing.T, url, key string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	body := `{"messages":[{"role":"user","content":"Tell me a long story about a fox and a lamp."}],"stream":true,"ignore_eos":true,"max_tokens":1900}`
	req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	return func() {
		cancel()
		resp.Body.Close()
	}
}

const held = `Number(document.querySelector('canvas[data-worker="decode d1"]')?.dataset.held ?? 0)`

// The page shows the pages of a request while it runs, and that they are free afterwards; the slider shows them again.
func TestPoolsNowAndThen(t *testing.T) {
	url := cluster(t)
	p := open(t, url)
	p.visit()
	p.until("nobody has a page", held+" === 0")
	end := ask(t, url, "")
	p.until("the request has pages", held+" > 0")
	p.until("it is listed with its step", `/running/.test(document.querySelector("#flights").innerText) && /p1 → d1/.test(document.querySelector("#flights").innerText)`)
	most, _ := strconv.Atoi(p.js(held))
	end()
	p.until("its pages are free again", held+" === 0 && /None/.test(document.querySelector('#flights').innerText)")
	p.until("the cancelled request is counted", `/client_gone/.test(document.querySelector("#refusals").innerText)`)

	p.run(chromedp.Focus("#slider"))
	p.until("the journal was read", `Number(document.querySelector("#slider").max) > 1`)
	seen, states := 0, map[string]bool{}
	for range 40 {
		before := p.js(`document.querySelector("#slider").value`)
		if before == p.js(`document.querySelector("#slider").min`) {
			break
		}
		p.run(chromedp.KeyEvent(kb.ArrowLeft))
		p.until("the slider moved", fmt.Sprintf(`document.querySelector("#when").textContent.includes("message %d ")`, atoi(t, before)-1))
		n, _ := strconv.Atoi(p.js(held))
		seen = max(seen, n)
		states[p.js(`document.querySelector("#flights tr td:nth-child(3)")?.textContent`)] = true
	}
	if seen != most || !states["owned"] || !states["reserved"] {
		t.Errorf("in the past at most %d pages were held, now %d were; states %v", seen, most, states)
	}
	if got := p.js(`document.body.className + " " + document.querySelector("#pools-title").textContent`); got != "past Page pools as they were" {
		t.Errorf("in the past the page says %q", got)
	}
	p.run(chromedp.Click("#live"))
	p.until("the present is back", `!document.body.classList.contains("past") && document.querySelector("#when").textContent === "now"`)
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The chat box asks the ordinary endpoint and shows the answer, or what was wrong.
func TestChat(t *testing.T) {
	p := open(t, cluster(t, "--api-key", "sk-1=acme"), "401")
	p.visit()
	p.until("a key is asked for", `!document.querySelector("#key-label").hidden`)
	p.run(chromedp.SendKeys("#say", "Hello\r"))
	p.until("the error is shown", `/invalid_api_key/.test(document.querySelector("#log").innerText)`)
	p.run(chromedp.SendKeys("#key", "sk-1"), chromedp.SendKeys("#say", "Tell me a story.\r"))
	p.until("the answer is there", `/all after/.test(document.querySelector("#log").innerText)`)
	if text := p.js(`document.querySelector("#log").innerText`); !strings.Contains(text, "Tell me a story.") || len(text) < 80 {
		t.Errorf("conversation: %s", text)
	}
	p.until("it is counted", `document.querySelector("#figures").innerText.includes("ended well\n1")`)
}

// Every control can be reached and used with the keyboard alone, and shows that it has the focus.
func TestKeyboard(t *testing.T) {
	p := open(t, cluster(t))
	p.visit()
	want := strings.Split(p.js(`[...document.querySelectorAll("a[href], button:not(:disabled), input:not([type=radio]), input[type=radio]:checked, textarea, [tabindex='0']")]
		.filter((e) => e.checkVisibility({visibilityProperty: true}) && !e.closest("[hidden]")).map((e) => e.dataset.worker || e.id || e.name || e.textContent.trim()).join("|")`), "|")
	reached := map[string]bool{}
	for range len(want) + 5 {
		p.run(chromedp.KeyEvent(kb.Tab))
		name := p.js(`document.activeElement.dataset.worker || document.activeElement.id || document.activeElement.name || document.activeElement.textContent.trim()`)
		if reached[name] = true; name == "" || document(p) {
			continue
		}
		if ring := p.js(`getComputedStyle(document.activeElement).outlineStyle + " " + parseFloat(getComputedStyle(document.activeElement).outlineWidth)`); ring != "solid 3" && ring != "solid 2" {
			t.Errorf("%s: focus is shown by %q", name, ring)
		}
	}
	for _, name := range want {
		if !reached[name] {
			t.Errorf("%q is not reached by the keyboard; reached %v", name, reached)
		}
	}
	if len(want) < 12 {
		t.Errorf("only %d controls: %v", len(want), want)
	}
	p.run(chromedp.Focus(`canvas[data-worker="decode d1"]`))
	p.until("the first page is described", `document.querySelector("#cell").textContent === "decode d1, page 0: free"`)
	p.run(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowLeft))
	p.until("the cursor moved", `document.querySelector("#cell").textContent === "decode d1, page 1: free"`)
	p.run(chromedp.KeyEvent(kb.End))
	p.until("the last page", `document.querySelector("#cell").textContent === "decode d1, page 1023: free"`)
	p.run(chromedp.KeyEvent(kb.ArrowUp))
	p.until("a row up", `/page (9|10)\d\d: free/.test(document.querySelector("#cell").textContent) && !/1023/.test(document.querySelector("#cell").textContent)`)
	p.run(chromedp.Focus("#pause"), chromedp.KeyEvent(" "))
	p.until("it is paused", `document.querySelector("#pause").getAttribute("aria-pressed") === "true" && document.querySelector("#status").textContent === "Paused"`)
	p.run(chromedp.KeyEvent(" "))
	p.until("it goes on", `document.querySelector("#status").textContent === "Live"`)
	unnamed := p.js(`[...document.querySelectorAll("button, input, textarea, canvas[tabindex], [role=region]")].filter((e) =>
		!(e.getAttribute("aria-label") || e.textContent.trim() || (e.labels && e.labels.length) || e.getAttribute("aria-labelledby"))).map((e) => e.outerHTML).join()`)
	if unnamed != "" {
		t.Errorf("without a name for screen readers: %s", unnamed)
	}
}

// document says that the focus has left the page for a moment, at its end.
func document(p *tab) bool { return p.js("document.activeElement === document.body") == "true" }

// Light and dark follow the system, and the button; whoever wants no motion gets none.
func TestThemes(t *testing.T) {
	p := open(t, cluster(t))
	media := func(scheme, motion string) chromedp.Action {
		return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion}})
	}
	dark := `(([r, g, b]) => r + g + b < 200)(getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number))`
	moves := `getComputedStyle(document.querySelector("#pause")).transitionDuration`
	p.run(media("dark", "no-preference"))
	p.visit()
	p.until("dark by the system", dark)
	if got := p.js(moves); got == "0s" {
		t.Errorf("transitions of %s: nothing to be left out", got)
	}
	p.run(media("light", "reduce"))
	p.until("light by the system", "!"+dark)
	if got := p.js(moves); got != "0s" {
		t.Errorf("with reduced motion: transitions of %s", got)
	}
	p.run(chromedp.Click("#theme"), chromedp.Click("#theme"))
	p.until("dark by the button", dark)
	p.run(chromedp.Reload())
	p.until("still dark", dark+` && document.querySelector("#theme").textContent === "Theme: dark"`)
	worst := p.js(contrast)
	if v, _ := strconv.ParseFloat(strings.Fields(worst)[0], 64); v < 4.5 {
		t.Errorf("dark: contrast %s", worst)
	}
	p.run(chromedp.Click("#theme"))
	p.until("the system's again", "!"+dark)
	worst = p.js(contrast)
	if v, _ := strconv.ParseFloat(strings.Fields(worst)[0], 64); v < 4.5 {
		t.Errorf("light: contrast %s", worst)
	}
}

// contrast is the lowest ratio of text to what lies behind it, and where.
const contrast = `(() => {
	const parse = (c) => c.match(/[\d.]+/g).map(Number);
	const lum = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
	let worst = [99, ""];
	for (const e of document.querySelectorAll("body *")) {
		if (!e.checkVisibility() || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || e.matches(".skip, .hidden, :disabled, noscript")) continue;
		let b = e; while (b && parse(getComputedStyle(b).backgroundColor)[3] === 0) b = b.parentElement;
		const x = lum(parse(getComputedStyle(e).color)), y = lum(parse(getComputedStyle(b || document.body).backgroundColor));
		const ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
		if (ratio < worst[0]) worst = [ratio, e.tagName + "#" + e.id + " " + e.textContent.slice(0, 30)];
	}
	return worst[0].toFixed(2) + " " + worst[1];
})()`

// Tenants have names for whoever has signed in with the admin key, and for nobody else.
func TestTenantsAreNamedToTheAdminAlone(t *testing.T) {
	keys := []string{"--api-key", "sk-1=acme", "--api-key", "sk-2=umbra"}
	t.Run("without an admin key", func(t *testing.T) {
		url := cluster(t, keys...)
		p := open(t, url)
		p.visit()
		end := ask(t, url, "sk-2")
		defer end()
		p.until("the request is there", held+` > 0 && /t-[0-9a-f]{6}/.test(document.querySelector("#flights").innerText)`)
		p.run(chromedp.Focus(`canvas[data-worker="decode d1"]`))
		p.until("its pages are described", `/t-[0-9a-f]{6}/.test(document.querySelector("#cell").textContent)`)
		if html := p.js("document.documentElement.outerHTML"); strings.Contains(html, "umbra") || strings.Contains(html, "acme") || strings.Contains(html, "fox") {
			t.Error("a tenant's name or its prompt is in the page")
		}
	})
	t.Run("with one", func(t *testing.T) {
		url := cluster(t, append(keys, "--admin-key", adminKey)...)
		for _, path := range []string{"/console", "/console/api/state", "/console/api/feed", "/console/api/past"} {
			resp, err := http.Get(url + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 401 {
				t.Errorf("%s without the key: %d", path, resp.StatusCode)
			}
		}
		p := open(t, url, "401")
		p.run(chromedp.Navigate(url+"/console"), chromedp.SendKeys("#key", "not the key\r"))
		p.until("the wrong key is refused", `/not the admin key/.test(document.body.innerText)`)
		p.run(chromedp.SendKeys("#key", adminKey+"\r"))
		p.until("signed in", `document.querySelector("#status")?.dataset.state === "live"`)
		end := ask(t, url, "sk-2")
		defer end()
		p.until("the tenant has its name", `/umbra/.test(document.querySelector("#flights").innerText)`)
		p.run(chromedp.Click("#sign-out button"))
		p.until("signed out", `document.querySelector("#key") && !document.querySelector("#grids")`)
	})
}

// At the width of a telephone nothing is cut off.
func TestNarrow(t *testing.T) {
	url := cluster(t)
	p := open(t, url)
	p.run(chromedp.EmulateViewport(390, 844))
	p.visit()
	defer ask(t, url, "")()
	resp, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[{"role":"user","content":"hi"}],"max_tokens":99999}`))
	if err != nil || resp.StatusCode != 400 {
		t.Fatalf("%v, %v", resp, err)
	}
	resp.Body.Close()
	p.until("tables are full", held+` > 0 && /context_length_exceeded/.test(document.querySelector("#refusals").innerText)`)
	if got := p.js(`document.documentElement.scrollWidth + " " + innerWidth`); got != "390 390" {
		t.Errorf("width of the page, of the window: %s", got)
	}
}
