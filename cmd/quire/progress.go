package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress tells how far a long read or download is: a bar on a terminal, a plain line every 5 s elsewhere, and nothing at all
// when it is over within half a second.
func progress(w io.Writer, what string) func(done, total int64) {
	tty := terminal(w)
	began, last, shown := time.Now(), time.Time{}, false
	return func(done, total int64) {
		now := time.Now()
		end := done >= total
		every := 5 * time.Second
		if tty {
			every = 100 * time.Millisecond
		}
		if !shown && (end || now.Sub(began) < 500*time.Millisecond) || !end && now.Sub(last) < every {
			return
		}
		shown, last = true, now
		text := fmt.Sprintf("%s  %s of %s  %3.0f %%", what, size(done), size(total), 100*float64(done)/float64(max(total, 1)))
		if !tty {
			fmt.Fprintln(w, text)
			return
		}
		const width = 30
		full := int(width * done / max(total, 1))
		fmt.Fprintf(w, "\r\x1b[K%s  [%s%s]", text, strings.Repeat("=", full), strings.Repeat(" ", width-full))
		if end {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
}

// size prints bytes for people.
func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}
