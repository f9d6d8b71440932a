package trace

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are what OpenTelemetry's environment variables say.
type settings struct {
	endpoint string // whole URL
	headers  map[string]string
	timeout  time.Duration
	delay    time.Duration // at most, between the end of a span and its sending
	ratio    float64       // of new traces that are sampled
	follow   bool          // the parent's word counts
	resource []Attr
}

// FromEnv starts the exporter that the environment asks for, as OpenTelemetry names it; nil when it asks for none: neither
// OTEL_EXPORTER_OTLP_ENDPOINT nor OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, or OTEL_SDK_DISABLED is true, or
// OTEL_TRACES_EXPORTER is none. get looks a variable up.
func FromEnv(get func(string) string, version string, log *slog.Logger) (*Exporter, error) {
	s, on, err := read(get)
	if err != nil || !on {
		return nil, err
	}
	if p := cmp.Or(get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), get("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/json"); p != "http/json" {
		log.Warn("traces are sent as http/json, which collectors take where they take http/protobuf", "asked", p)
	}
	return newExporter(s, version, log), nil
}

func read(get func(string) string) (s settings, on bool, err error) {
	whole, base := get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), get("OTEL_EXPORTER_OTLP_ENDPOINT")
	if whole == "" && base == "" || strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") || get("OTEL_TRACES_EXPORTER") == "none" {
		return s, false, nil
	}
	s.endpoint = cmp.Or(whole, strings.TrimSuffix(base, "/")+"/v1/traces")
	if u, err := url.Parse(s.endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return s, false, fmt.Errorf("trace: OTEL_EXPORTER_OTLP_ENDPOINT: a URL like http://127.0.0.1:4318 is wanted")
	}
	if s.headers, err = pairs("OTEL_EXPORTER_OTLP_HEADERS", cmp.Or(get("OTEL_EXPORTER_OTLP_TRACES_HEADERS"), get("OTEL_EXPORTER_OTLP_HEADERS"))); err != nil {
		return s, false, err
	}
	if s.timeout, err = millis("OTEL_EXPORTER_OTLP_TIMEOUT", cmp.Or(get("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"), get("OTEL_EXPORTER_OTLP_TIMEOUT")), 10*time.Second); err != nil {
		return s, false, err
	}
	if s.delay, err = millis("OTEL_BSP_SCHEDULE_DELAY", get("OTEL_BSP_SCHEDULE_DELAY"), time.Second); err != nil {
		return s, false, err
	}
	attrs, err := pairs("OTEL_RESOURCE_ATTRIBUTES", get("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return s, false, err
	}
	if name := get("OTEL_SERVICE_NAME"); name != "" {
		attrs["service.name"] = name
	}
	for _, k := range slices.Sorted(maps.Keys(attrs)) {
		s.resource = append(s.resource, Attr{k, attrs[k]})
	}
	err = s.sampler(get("OTEL_TRACES_SAMPLER"), get("OTEL_TRACES_SAMPLER_ARG"))
	return s, err == nil, err
}

// sampler reads which traces are wanted.
func (s *settings) sampler(name, arg string) error {
	name = cmp.Or(name, "parentbased_always_on")
	kind, follow := strings.CutPrefix(name, "parentbased_")
	s.follow = follow
	switch kind {
	case "always_on":
		s.ratio = 1
	case "always_off":
		s.ratio = 0
	case "traceidratio":
		r, err := strconv.ParseFloat(cmp.Or(arg, "1"), 64)
		if err != nil || !(r >= 0 && r <= 1) {
			return fmt.Errorf("trace: OTEL_TRACES_SAMPLER_ARG: %.20q, a number from 0 to 1 is wanted", arg)
		}
		s.ratio = r
	default:
		return fmt.Errorf("trace: OTEL_TRACES_SAMPLER: %.40q is none of always_on, always_off, traceidratio, each with or without parentbased_ before it", name)
	}
	return nil
}

// pairs reads key=value pairs with commas between them, as in W3C baggage: percent-encoded.
func pairs(name, text string) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range strings.Split(text, ",") {
		if strings.TrimSpace(p) == "" {
			continue
		}
		k, v, ok := strings.Cut(p, "=")
		value, err := url.PathUnescape(strings.TrimSpace(v))
		if k = strings.TrimSpace(k); !ok || k == "" || err != nil {
			return nil, fmt.Errorf("trace: %s: pair %d of %d characters: key=value is wanted", name, len(out)+1, len(p))
		}
		out[k] = value
	}
	return out, nil
}

func millis(name, text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 3_600_000 {
		return 0, fmt.Errorf("trace: %s: %.20q, milliseconds from 1 to 3600000 are wanted", name, text)
	}
	return time.Duration(n) * time.Millisecond, nil
}
