// Package bench measures: a model on this machine, an OpenAI-compatible server under load, the parts of one hand-off, and the
// bytes a hand-off moves. Every figure carries what it was measured on, repetitions are reported as median, least and most,
// and where two things are compared they are measured in turns within one run.
package bench
