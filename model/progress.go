package model

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// lineEvery is how far apart the plain lines of a progress are.
const lineEvery = 5 * time.Second

// Progress shows how far something long has come: a bar where w is a terminal, else a plain line every five seconds. What
// is done within a second shows nothing. Its result is what OpenOptions.Progress takes.
func Progress(w *os.File, label string) func(done, total int64) {
	if term.IsTerminal(int(w.Fd())) {
		return bar(w, label)
	}
	return lines(w, label, time.Now)
}

func bar(w io.Writer, label string) func(done, total int64) {
	var b *progressbar.ProgressBar
	start := time.Now()
	return func(done, total int64) {
		if b == nil && time.Since(start) < time.Second/2 {
			return
		}
		if b == nil {
			b = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(label),
				progressbar.OptionShowBytes(true), progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond),
				progressbar.OptionClearOnFinish())
		}
		_ = b.Set64(done)
		if done >= total {
			_ = b.Finish()
		}
	}
}

func lines(w io.Writer, label string, now func() time.Time) func(done, total int64) {
	last, said := now(), false
	return func(done, total int64) {
		t := now()
		if end := done >= total; (!end && t.Sub(last) < lineEvery) || (end && !said) {
			return
		}
		last, said = t, done < total
		percent := 100.0
		if total > 0 {
			percent = 100 * float64(done) / float64(total)
		}
		fmt.Fprintf(w, "%s: %.0f %% of %s\n", label, percent, bytesText(total))
	}
}

// bytesText gives a size in the unit that suits it.
func bytesText(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d bytes", n)
}
