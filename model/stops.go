package model

import "strings"

// stopper watches a text for stop strings. It gives out what can be part of none, and holds back an end that may become one.
// What it gives out depends on the text alone, not on how it was cut into tokens.
type stopper struct {
	stops []string
	held  []byte
}

func newStopper(stops []string) stopper {
	var s stopper
	for _, x := range stops {
		if x != "" {
			s.stops = append(s.stops, x)
		}
	}
	return s
}

// add takes text in and gives what may go out. When a stop string is complete and armed is set, stop names it, out is the text
// before it, and all after it is dropped. While not armed (before min_tokens) stop strings are text.
func (s *stopper) add(text []byte, armed bool) (out []byte, stop string) {
	if len(s.stops) == 0 {
		return text, ""
	}
	s.held = append(s.held, text...)
	if armed {
		if at, match := s.find(); match != "" {
			out = s.held[:at]
			s.held = nil
			return out, match
		}
	}
	keep := s.tail()
	out = append(out, s.held[:len(s.held)-keep]...)
	s.held = append([]byte(nil), s.held[len(s.held)-keep:]...)
	return out, ""
}

// find gives the stop string that is complete first, and of those that end together the longest.
func (s *stopper) find() (at int, match string) {
	text, end := string(s.held), len(s.held)+1
	for _, x := range s.stops {
		i := strings.Index(text, x)
		if i < 0 {
			continue
		}
		if e := i + len(x); e < end || (e == end && len(x) > len(match)) {
			at, match, end = i, x, e
		}
	}
	return at, match
}

// tail is how many bytes at the end of the held text may be the beginning of a stop string.
func (s *stopper) tail() int {
	longest := 0
	text := string(s.held)
	for _, x := range s.stops {
		for n := min(len(x)-1, len(text)); n > longest; n-- {
			if strings.HasSuffix(text, x[:n]) {
				longest = n
				break
			}
		}
	}
	return longest
}

func (s *stopper) flush() []byte {
	held := s.held
	s.held = nil
	return held
}
