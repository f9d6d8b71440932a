package bus

import (
	"fmt"
	"strings"
)

// CheckSubject refuses what must never be published to: empty tokens, wildcards, white space, more than 255 bytes.
func CheckSubject(subject string) error {
	if subject == "" || len(subject) > 255 {
		return fmt.Errorf("bus: subject: %d bytes, allowed 1 to 255", len(subject))
	}
	i := 0
	for t := range strings.SplitSeq(subject, ".") {
		i++
		if t == "" || t == "*" || t == ">" || strings.ContainsAny(t, " \t\r\n") {
			return fmt.Errorf("bus: subject %q: token %d is %q", subject, i, t)
		}
	}
	return nil
}

// HeaderSize is about what headers take on the wire; they count towards max_payload.
func HeaderSize(h map[string][]string) int { return headerSize(h) }

func headerSize(h map[string][]string) int {
	if len(h) == 0 {
		return 0
	}
	n := len("NATS/1.0\r\n\r\n")
	for k, vs := range h {
		for _, v := range vs {
			n += len(k) + len(v) + len(": \r\n")
		}
	}
	return n
}

func tokens(subject string) []string { return strings.Split(subject, ".") }

func oneLine(s string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(s) }
