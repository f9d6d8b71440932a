package browser

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestScreenshots puts pictures into the folder of -shots, for people to look at.
func TestScreenshots(t *testing.T) {
	if *shots == "" {
		t.Skip("no -shots DIR")
	}
	url := cluster(t, "--api-key", "sk-1=acme", "--api-key", "sk-2=umbra", "--api-key", "sk-3=default")
	p := open(t, url)
	shoot := func(name string) {
		t.Helper()
		var b []byte
		p.run(chromedp.FullScreenshot(&b, 100))
		if err := os.WriteFile(filepath.Join(*shots, name+".png"), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	scheme := func(name string) chromedp.Action {
		return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}})
	}
	p.run(chromedp.EmulateViewport(1440, 1000), scheme("light"))
	p.visit()
	p.run(chromedp.SendKeys("#key", "sk-1"), chromedp.SendKeys("#say", "Tell me a story.\r"))
	p.until("the answer is there", `/all after/.test(document.querySelector("#log").innerText)`)
	shoot("light")
	p.run(scheme("dark"))
	shoot("dark")
	var ends []func()
	for i := range 9 {
		ends = append(ends, ask(t, url, []string{"sk-1", "sk-2", "sk-3"}[i%3]))
	}
	p.until("all have pages", held+" > 200")
	p.run(chromedp.Focus(`canvas[data-worker="decode d1"]`), chromedp.KeyEvent(kb.ArrowRight))
	shoot("load-dark")
	p.run(scheme("light"), chromedp.Click(`input[value="tenant"]`))
	shoot("load-light-tenants")
	for _, end := range ends {
		end()
	}
	p.until("all is free", held+" === 0")
	p.run(chromedp.Focus("#slider"))
	p.until("the journal was read", `Number(document.querySelector("#slider").max) > 1`)
	for i := 0; i < 500 && atoi(t, p.js(held)) < 300; i++ {
		p.run(chromedp.KeyEvent(kb.ArrowLeft))
	}
	p.until("the past is there", held+" > 100")
	shoot("past")
	p.run(chromedp.Click("#live"), chromedp.EmulateViewport(390, 844))
	shoot("narrow")
	p.run(scheme("dark"))
	shoot("narrow-dark")
	door := cluster(t, "--admin-key", adminKey)
	p = open(t, door, "401")
	p.run(chromedp.EmulateViewport(800, 600), chromedp.Navigate(door+"/console"))
	p.until("the form is there", `document.querySelector("#key")`)
	shoot("sign-in")
}
