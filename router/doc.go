// Package router is the front of a cluster: it validates and tokenises requests, admits them against what the live workers can
// hold, pairs a decode with a prefill, follows each hand-off and gives every request exactly one end.
//
// Three layers: place.go decides (admission, placement, queues), loop*.go lives a request's life as Handle(Event) []Effect, and
// service*.go turns the bus into events and performs the effects. Two doors stand on Backend: http*.go and nats*.go. Both use
// package openai for validation and shapes, so a boundary is the same at either.
//
// A request's life:
//
//	Submit -> queued -> Reserve -> Job stored -> replies 0 (outcome), 1, 2, ... -> end acknowledged
//	             ^__________ Lost: a new attempt with a new reservation, three in all
//
// The client sees nothing before the outcome: no status, no header, no byte.
package router
