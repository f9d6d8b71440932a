// Package matrix lets late messages through over the real bus. Its tests run a router, a decode and two prefill workers over an
// embedded NATS server, each behind a tap that can hold any message: every step of a hand-off meets every fault, the pages are
// given to the next request at once, and then the message that was held comes after all. The next owner's tokens must be those of
// a run alone, the late message refused and counted, and every page zeroed and free at the end.
package matrix
