// Package decode is the service that takes KV pages from prefill, proves that they are the request's own, and writes tokens.
//
// # Layers
//
// The core (kvtransfer's Inbound and Gate, plan.go) decides about one hand-off or one batch. The Loop holds all state and makes
// all decisions: Handle takes one Event and gives Effects, without goroutine, lock or clock. A life (life*.go) is one epoch of
// the process: its goroutines turn the bus and the engine into Events and perform Effects. The Service strings lives together.
//
// # One attempt
//
//	event                  pages        effects
//	ReserveAsked           Reserved     Journal(reserved), Reserved
//	ClaimCame              Filling      Ack, Control(Claimed)
//	FrameCame                           OpenFrame
//	FrameOpened                         CopyFrame, under a grant
//	FrameCopied                         Ack
//	ManifestCame                        Ack; once all is there: Journal(verdict), which must be acknowledged
//	Journaled              Owned        Witness (a): layer 0 of all rows, under a hold
//	WitnessDone                         joins the batch: its first Step is Witness (b), the last row
//	StepDone                            SendReply 0 (outcome), SendReply 1 (token); then a Step for each next token
//	StepDone, the last     Zeroing      SendReply (token), SendReply (End), Journal(finished), Forget, PurgeKV, Zero
//	Zeroed                 Free
//	ResendAsked with Ack                Resent; the attempt is forgotten
//
// Any other end releases the pages in the same way, through quarantine when the bytes are suspect, and tells the router with
// one typed error: as reply 0 when nothing was said yet, else as the End.
//
// # Invariants
//
//   - No effect that reads pages (Witness, Step) names a sequence whose verdict the journal has not acknowledged.
//   - A Step holds at most one row's grant for each sequence; at most one Step is out. Sequences join and leave between steps.
//   - Pages leave an ended attempt only when every copy, witness and step that was started on them has reported, and are Free
//     only after they were cleared.
//   - Every delivery is answered with one Ack or Term, every request with one Reserved, Refused or Resent.
//   - Replies are numbered without a gap; the last one, and only it, is a failed Outcome or an End.
//   - The table, the batch, the replies kept and the queues are bounded by LoopConfig, the page pool and bus limits.
package decode
