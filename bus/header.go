package bus

import "context"

// headerKey is where a context keeps the headers of a request.
type headerKey struct{}

// WithHeader gives a context with which Request sends these headers; nil sends none. They count towards max_payload.
func WithHeader(ctx context.Context, h map[string][]string) context.Context {
	if h == nil {
		return ctx
	}
	return context.WithValue(ctx, headerKey{}, h)
}

// HeaderOf gives the headers of WithHeader, for implementations of Request.
func HeaderOf(ctx context.Context) map[string][]string {
	h, _ := ctx.Value(headerKey{}).(map[string][]string)
	return h
}
