// Package jet puts NATS and JetStream behind bus: an embedded server, a connection that outlives the server, the streams of a
// cluster, and the API door as a NATS service. It is the only package that knows NATS.
//
// A connection never gives up. While the server is away every operation fails at once with bus.ErrDown. When it is back,
// the connection first makes again what it was asked to ensure (streams in memory are gone after a restart), then its
// consumers, and only then says Up. A consumer is also made again when its pulls miss heartbeats.
package jet
