// Package kvtransfer is the hand-off of KV pages from a prefill worker to a decode worker: its words, its messages and, for
// both sides, its state machines. It is pure: no I/O, clock, goroutine, lock or randomness. A loop tells a machine what
// happened and does what it answers; equal inputs give equal outputs, so everything here can be cloned, printed and replayed.
//
// # The contract
//
// Decode promises pages for N rows (Reservation) and lets kernels read them only after the gate has found that what came is
// exactly what was promised, in four respects:
//
//	count      tokens, cached, sent, pages, frames and rows add up, to the token; every (layer, row) of [C, N) once
//	identity   hand-off, attempt, claim, tenant, sender, reservation, fingerprints of model, layout and compute
//	content    every frame opened under this claim's key and is in the pages; the manifest's digest is that of the tags
//	time       the lease is alive, the process is the one that promised, every page has the promised generation
//
// and after the witness has found that the bytes mean this prompt: layer 0 of every row of [C, N), and all layers and the
// output of the last row, equal what decode computes from its own copy of the token ids.
//
// # Decode's side: Inbound
//
//	Reserved --Claim--> Filling --Manifest and all frames: Gate--> Judging --journal's ack--> Admitted
//	                                                                                             |
//	   Ended <--finish or error-- Running <--both parts agree-- Witnessing <--Witness------------+
//
//	from any state that is not an end:  End(Corrupt) --> Quarantined;  End(other) --> Refused, from Running --> Ended
//
// Pages follow: Reserved, then Filling from the claim on, Owned from Admitted on; every end releases them, a Quarantined one
// by way of quarantine. Package page keeps them where they are while a copy, a step or a witness is out.
//
// What each message does in each state (- = ignored and counted, G = answered Gone, = = acknowledged, nothing else):
//
//	               Reserved   Filling                    Judging..Running   ended
//	Claim, first   Filling    G                          G                  G
//	Claim, same    -          Claimed again              Claimed again      G
//	Frame          -          open, then copy            -                  -
//	  same tag     -          =                          -                  -
//	  other tag    -          opens: Quarantined         -                  -
//	Progress       -          restarts the lease         -                  -
//	Abort          -          Refused                    -                  -
//	Manifest       -          kept; wrong: Quarantined   -                  -
//
// Only messages of the bound claim's sender count, and a frame counts only once it opened: its header is anybody's until then.
//
// # Prefill's side: Outbound
//
//	Jobbed --Claim--> Claiming --Claimed--> Sending --all stored--> Manifested --stored--> Done
//	   any but the ends:  Gone | Cancelled | Aborted | Lost
//
// It may compute as soon as it has a job, and sends nothing but claims before Claimed. A frame's cut, key and nonce are
// functions of the reservation and the claim, so sending again means the same bytes. The manifest leaves after the stream has
// acknowledged the last frame.
//
// # Invariants
//
//   - An attempt is bound to one claim, once. No other worker's bytes reach its pages.
//   - C + Sent = N. Nothing truncates, pads or aligns; N = 1 is no special case, and there is no placeholder prompt.
//   - N, the token ids and their digest are captured once, at the edge, and only compared afterwards.
//   - No state after Judging is reached without a verdict that says OK and a journal that has acknowledged it (or an operator
//     who chose to run without one, which is counted).
//   - No token leaves before both parts of the witness agreed.
//   - An end is never left. Corrupt always leads through quarantine.
//   - A lease that has ended stays ended; it never outlives the deadline. Ticks of two processes are never compared.
//
// Errors are in one table (errors.go); docs/errors.md is made from it. Bytes are package wire's, keys and seals package
// seal's, page ownership package page's.
package kvtransfer
