package cluster

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// quiet holds back everything below a warning until open is set: what starts together is not worth a line for each part, and the
// banner says it all.
type quiet struct {
	slog.Handler
	open *atomic.Bool
}

// Enabled implements slog.Handler.
func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return (l >= slog.LevelWarn || q.open.Load()) && q.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(a []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(a), q.open} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name), q.open} }
