// Package prefill is the worker that reads prompts: it takes jobs, computes their KV rows in pages of its own, and sends them,
// sealed, to the decode that reserved room for them.
//
// Three layers, as in every service: plan.go decides what to compute next, Loop holds the state and makes all decisions, one
// event at a time, and Service turns the bus, the engine and the clock into events and performs the loop's effects.
//
// One hand-off goes through these steps; kvtransfer.Outbound keeps its state:
//
//	Job          checked: counts, keyed digest of the prompt, fingerprints, vocabulary, room. What does not fit is claimed and
//	             aborted with the numbers, since an abort counts only for its own claim; nothing is computed of it.
//	SendClaim    at once, and again every tenth of the lease until decode answers; the answer acknowledges the job
//	Compute      chunks in round robin between hand-offs, as soon as the pool has pages, claimed or not
//	SealAndSend  after Claimed, frames of rows that are computed, while the next chunk computes
//	Zero         when the last frame is stored, or at any end, once no step and no seal holds the pages
//	SendManifest when the last frame is stored
//
// It ends early at Gone, Cancel, the request's deadline, a lease without an answer to the claim, a lease in which the stream
// took nothing, and a lease without a heartbeat of the decode epoch that made the reservation.
package prefill
