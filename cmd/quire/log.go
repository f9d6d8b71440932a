package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
)

// logger makes the log of a role: JSON records, or lines for people. What goes in is the caller's choice; prompts, token ids and
// pages never do.
func (f logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	switch f.LogLevel {
	case "debug":
		level = slog.LevelDebug
	case "warn":
		level = slog.LevelWarn
	case "error":
		level = slog.LevelError
	}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(&lineHandler{w: w, mu: &sync.Mutex{}, level: level, colour: colour(w)})
}

// lineHandler writes `15:04:05.000 warn  decode d1  message  key=value ...`, one line a record.
type lineHandler struct {
	w      io.Writer
	mu     *sync.Mutex
	level  slog.Level
	colour bool
	who    string // "decode d1"
	attrs  string // " key=value ..." of With
	group  string // "group." of WithGroup
}

var _ slog.Handler = (*lineHandler)(nil)

// Enabled says whether a level is written.
func (h *lineHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

// WithAttrs keeps attributes for later records; role and id come first on the line, without their names.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	for _, a := range attrs {
		if h.group == "" && (a.Key == "role" || a.Key == "id") {
			n.who = strings.TrimSpace(n.who + " " + a.Value.String())
			continue
		}
		n.attrs += n.format(a)
	}
	return &n
}

// WithGroup puts a name before the keys that follow.
func (h *lineHandler) WithGroup(name string) slog.Handler {
	n := *h
	n.group += name + "."
	return &n
}

func (h *lineHandler) format(a slog.Attr) string {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		var b strings.Builder
		for _, g := range v.Group() {
			g.Key = a.Key + "." + g.Key
			b.WriteString(h.format(g))
		}
		return b.String()
	}
	text := v.String()
	if text == "" || strings.ContainsAny(text, " \"\n\t=") {
		text = strconv.Quote(text)
	}
	return " " + h.group + a.Key + "=" + text
}

// Handle writes one record in one write.
func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	level := fmt.Sprintf("%-5s", strings.ToLower(r.Level.String()))
	if h.colour {
		switch {
		case r.Level >= slog.LevelError:
			level = "\x1b[31m" + level + "\x1b[0m"
		case r.Level >= slog.LevelWarn:
			level = "\x1b[33m" + level + "\x1b[0m"
		}
	}
	b.WriteString(r.Time.Format("15:04:05.000") + " " + level + " ")
	if h.who != "" {
		b.WriteString(h.who + "  ")
	}
	b.WriteString(strings.ReplaceAll(r.Message, "\n", " "))
	extra := h.attrs
	r.Attrs(func(a slog.Attr) bool { extra += h.format(a); return true })
	if extra != "" {
		b.WriteString(" " + extra)
	}
	b.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, b.String())
	return err
}
