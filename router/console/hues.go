package console

import "sync"

// maxHues bounds how many colours are remembered; then they are given out anew.
const maxHues = 4096

// hues gives each name a colour far from those given last, and the same one again as long as it is remembered.
type hues struct {
	mu    sync.Mutex
	given map[string]int // degrees
}

// of gives a name's hue. Steps of the golden angle keep neighbours apart, however many there are.
func (h *hues) of(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hue, ok := h.given[name]; ok {
		return hue
	}
	if h.given == nil || len(h.given) >= maxHues {
		h.given = map[string]int{}
	}
	hue := (210 + len(h.given)*1375/10) % 360
	h.given[name] = hue
	return hue
}
