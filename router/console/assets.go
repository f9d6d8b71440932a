package console

import (
	"bytes"
	"embed"
	"net/http"
	"strings"
	"time"

	"quire/kvtransfer"
)

//go:embed assets
var files embed.FS

// kinds of what is served under /console/assets/.
var kinds = map[string]string{"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}

// asset serves a script, the style or the icon. Pages are not served this way.
func asset(w http.ResponseWriter, r *http.Request, name string) {
	_, ext, _ := strings.Cut(name, ".")
	b, err := files.ReadFile("assets/" + name)
	if err != nil || kinds[ext] == "" {
		fail(w, kvtransfer.Errorf(kvtransfer.NotFound, "console: no such file"))
		return
	}
	w.Header().Set("Content-Type", kinds[ext])
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
}

// sendPage sends one of the pages. The form that comes after a wrong key is the form with a word about it.
func sendPage(w http.ResponseWriter, status int, name string) {
	wrong := name == "sign-in-again.html"
	if wrong {
		name = "sign-in.html"
	}
	b, err := files.ReadFile("assets/" + name)
	if err != nil {
		fail(w, err)
		return
	}
	said := ""
	if wrong {
		said = `<p class="wrong" role="alert">That is not the admin key.</p>`
	}
	b = bytes.Replace(b, []byte("<!-- said -->"), []byte(said), 1)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
