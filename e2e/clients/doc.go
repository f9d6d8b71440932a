// Package clients holds tests that speak to a running Quire with clients that others made: OpenAI's official Go library and the
// nats CLI. It is a module of its own, so that what they depend on stays out of Quire's.
package clients
