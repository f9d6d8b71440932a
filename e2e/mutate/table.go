package main

// target is a function whose checks are taken out: every condition of it that guards something.
type target struct {
	area string
	file string
	fns  []string // nil = all of the file
}

// targets is the table of what is taken out. An area is a row of headings in docs/testing.md.
var targets = []target{
	{"gate", "kvtransfer/gate.go", []string{"judge"}},
	{"gate", "kvtransfer/gate_count.go", nil},
	{"gate", "kvtransfer/gate_identity.go", nil},
	{"gate", "kvtransfer/gate_content.go", nil},
	{"gate", "kvtransfer/lease.go", nil},
	{"hand-off on decode", "kvtransfer/inbound.go", []string{"Claim", "unfit", "Late", "mine", "Progress", "Abort", "End", "Finish", "orElse"}},
	{"hand-off on decode", "kvtransfer/inbound_frames.go", nil},
	{"hand-off on decode", "kvtransfer/inbound_verdict.go", nil},
	{"hand-off on decode", "kvtransfer/witness.go", nil},
	{"hand-off on decode", "decode/loop_frame.go", nil},
	{"hand-off on decode", "decode/loop_step.go", nil},
	{"hand-off on decode", "decode/handoff.go", []string{"end", "ended", "tellPrefill"}},
	{"hand-off on decode", "decode/loop_table.go", []string{"standing", "get", "forget", "settled", "count", "nextDue", "takeDue"}},
	{"hand-off on prefill", "kvtransfer/outbound.go", []string{"NewOutbound"}},
	{"hand-off on prefill", "kvtransfer/outbound_lease.go", nil},
	{"hand-off on prefill", "kvtransfer/outbound_send.go", nil},
	{"hand-off on prefill", "prefill/loop.go", []string{"pump", "idle", "waiting", "settleEnd", "ack", "abort", "check", "find"}},
	{"hand-off on prefill", "prefill/loop_send.go", nil},
	{"hand-off on prefill", "prefill/loop_step.go", nil},
	{"hand-off on prefill", "prefill/loop_time.go", []string{"tick", "heartbeat", "dead", "Figures"}},
	{"hand-off on prefill", "prefill/plan.go", nil},
	{"ledger", "kvtransfer/page/ledger.go", nil},
	{"ledger", "kvtransfer/page/holds.go", nil},
	{"ledger", "kvtransfer/page/release.go", nil},
	{"admission", "router/place.go", nil},
	{"admission", "router/place_direct.go", nil},
	{"admission", "router/queue.go", nil},
	{"admission", "router/roster.go", nil},
	{"admission", "router/loop.go", []string{"Handle", "hear", "submit", "deadline", "retryAfter", "cancelAsked", "statusAsked", "drain"}},
	{"admission", "router/loop_attempt.go", nil},
	{"admission", "decode/plan.go", []string{"admit", "fits", "admitShape"}},
	{"admission", "decode/loop_claim.go", nil},
	{"admission", "prefill/loop_job.go", []string{"job", "refuse", "strange", "limit", "known", "takePages", "claimed", "gone", "cancel", "spoken"}},
	{"status", "decode/loop_reply.go", nil},
	{"status", "router/loop_replies.go", nil},
	{"status", "router/loop_end.go", nil},
	{"status", "router/loop_due.go", []string{"nextDue", "watch", "takeDue", "anySilent", "silent"}},
	{"status", "router/http_generate.go", []string{"generate", "started", "endOf", "collect"}},
	{"status", "router/http_routes.go", []string{"AsError", "fail"}},
	{"status", "router/sse.go", []string{"stream"}},
	{"status", "router/nats.go", []string{"generate", "stream"}},
	{"console", "router/admin.go", []string{"NewAdmin", "Is", "Allows", "profile"}},
	{"console", "router/console/session.go", []string{"admit", "local", "loopback", "turnAway", "post", "signedIn"}},
	{"console", "router/console/view.go", []string{"tenant", "handoff"}},
}

// statement is a line that is left out, or replaced, as it stands in the source.
type statement struct {
	area, file, fn string
	old            string // occurs once in the function
	with           string // "" = nothing
}

// statements are effects that something else relies on.
var statements = []statement{
	{"ledger", "kvtransfer/page/ledger.go", "Reserve", "gen: p.gen + 1", "gen: p.gen"},
	{"ledger", "kvtransfer/page/holds.go", "Grant", "a.settled = 0", ""},
	{"ledger", "kvtransfer/page/holds.go", "Settle", "delete(a.grants, g.id)", ""},
	{"ledger", "kvtransfer/page/holds.go", "Settle", "l.leave(a)", ""},
	{"ledger", "kvtransfer/page/holds.go", "Unhold", "l.leave(a)", ""},
	{"ledger", "kvtransfer/page/release.go", "Quarantine", "l.pages[s.Page].tainted = true", ""},
	{"ledger", "kvtransfer/page/release.go", "Quarantine", "a.rows, a.settled = 0, 0", ""},
	{"ledger", "kvtransfer/page/release.go", "leave", "l.zeroing = append(l.zeroing, s.Page)", ""},
	{"ledger", "kvtransfer/page/release.go", "TakeZeroing", "l.pages[id].taken = true", ""},
	{"hand-off on decode", "decode/loop_frame.go", "judge", "Must: true", "Must: false"},
	{"hand-off on decode", "decode/loop_frame.go", "onCopied", "l.judge(h)", ""},
	{"hand-off on decode", "decode/handoff.go", "ended", "l.tellPrefill(h)", ""},
	{"hand-off on decode", "decode/handoff.go", "ended", "l.do(PurgeKV{Key: k})", ""},
	{"hand-off on decode", "decode/handoff.go", "ended", "l.tellEnd(h)", ""},
	{"admission", "decode/loop_claim.go", "onReserve", "l.supersede(e.From, k)", ""},
	{"hand-off on decode", "decode/loop.go", "onTick", "l.silentRouters()", ""},
	{"status", "decode/loop_reply.go", "tellEnd", "Replies: uint32(len(h.replies)) + 1", "Replies: uint32(len(h.replies))"},
	{"status", "decode/loop_reply.go", "onResend", "l.routers[h.router] = l.now", ""},
	{"status", "router/loop_end.go", "close", "l.acknowledge(c)", ""},
	{"status", "router/loop_end.go", "tick", "l.acknowledge(c)", ""},
	{"hand-off on prefill", "prefill/loop_send.go", "sendFrame", "l.check(l.ledger.Hold(h.Key.Owner()))", ""},
	{"hand-off on prefill", "prefill/loop_send.go", "frameSealed", "l.check(l.ledger.Unhold(ev.Frame.Key.Owner()))", ""},
	{"status", "router/loop_end.go", "finish", `end.Finish, end.Prompt, end.Output = "", len(r.prompt), len(r.output)`, ""},
	{"status", "router/loop_end.go", "lose", "l.do(SendCancel{Key: a.key, To: a.decode, Error: err})", ""},
	{"status", "router/loop_end.go", "close", "l.do(Forget{Key: a.key})", ""},
	{"status", "router/loop_end.go", "again", "r.losses++", ""},
	{"status", "router/http_routes.go", "fail", "h.send(w, meaning.HTTP, openai.EncodeError(e))", "h.send(w, 200, openai.EncodeError(e))"},
}

// spared are checks whose absence nobody could see, with the reason: what they would refuse cannot come about by the calls there
// are, or another check in front of them refuses the same in the same words. Keys are file and name.
var spared = map[string]string{
	"kvtransfer/page/holds.go Settle: !a.leaving, taken as true":                               "Grow refuses an owner that leaves, whatever was settled",
	"kvtransfer/page/release.go Zeroed: p.state != Zeroing, taken as false":                    "a page that was given out is Zeroing until it is freed, which forgets that it was given out",
	"kvtransfer/outbound.go NewOutbound: r.C < 0, taken as false":                              "no cut begins below row 0, and it must begin at C",
	"kvtransfer/outbound_lease.go Tick: o.state.Ended()":                                       "an attempt that has ended does not end again: end says so",
	"kvtransfer/outbound_send.go firstWaiting: o.fullSince == 0":                               "it saves a walk over frames that are stored or out",
	"kvtransfer/outbound_send.go Stored: o.fullSince != 0, taken as true":                      "while nothing was refused what it sets is 0",
	"kvtransfer/outbound_send.go ManifestStored: o.state == OutboundManifested, taken as true": "a manifest is out in that state alone",
	"kvtransfer/outbound_send.go ManifestFull: o.state == OutboundManifested, taken as true":   "a manifest is out in that state alone",
	"decode/loop_frame.go onCopied: !h.in.State.Over(), taken as true":                         "pages under an open grant do not change hands: that is the ledger's, tried above",
	"decode/loop_frame.go onCopied: err.IsZero(), taken as true":                               "pages under an open grant do not change hands: that is the ledger's, tried above",
	"decode/loop_frame.go onManifest: h.in.Stated != nil, taken as true":                       "a time for the journal",
	"decode/loop_frame.go onManifest: h.statedAt == 0, taken as true":                          "a time for the journal",
	"decode/loop_step.go startStep: err != nil":                                                assertion,
	"decode/loop_step.go work: err != nil":                                                     assertion,
	"decode/loop_step.go onStep: err != nil":                                                   assertion,
	"decode/loop_step.go onStep: l.stopped":                                                    "a loop that has stopped gives no more effects",
	"decode/loop_step.go result: err != nil":                                                   assertion,
	"decode/loop_claim.go abandonOf: !lost(p)":                                                 "it saves a walk over attempts of which none is lost",
	"prefill/loop.go idle: l.step == nil, taken as true":                                       "an attempt with rows in a step stays in the table until the step reports",
	"prefill/loop.go waiting: !a.out.State().Ended(), taken as true":                           "an attempt that ends without pages leaves the table in the turn in which it ended",
	"prefill/loop_send.go inFlight: f.Key == a.out.Key(), taken as true":                       "claim ids are random and never used twice",
	"prefill/loop_send.go frameFailed: !ok, taken as false":                                    "of a frame that is not out there is no attempt, which the other operand says",
	"prefill/loop_send.go sendManifest: !a.out.ManifestDue()":                                  "it saves a digest; Manifest asks the same",
	"prefill/loop_step.go startStep: err != nil":                                               assertion,
	"prefill/loop_step.go chunkDone: a == nil":                                                 assertion,
	"prefill/plan.go nextStep: budget < 1, taken as false":                                     "nobody gets a share of no budget",
	"prefill/plan.go measure: tokens < 1, taken as false":                                      "a step has a token at least",
	"router/place.go chooseBy: !avoided, taken as true":                                        "one decode alone is avoided",
	"decode/loop_table.go forget: l.handoffs[k] != h":                                          "an attempt is forgotten once",
	"decode/loop_table.go nextDue: h.in.State.Over()":                                          early,
	"router/loop_due.go nextDue: a.phase >= waiting, taken as true":                            early,
	"router/loop_due.go nextDue: !a.asking, taken as true":                                     early,
	"router/loop_due.go takeDue: l.attempts[t.a.key] == t.a, taken as true":                    "tick looks at those alone that are there",
	"router/loop_due.go takeDue: t.a.dueAt == t.at, taken as true":                             early,
	"router/loop_due.go anySilent: w.slots.ours > 0, taken as true":                            early,
	"router/loop_due.go anySilent: l.silent(w), taken as true":                                 early,
	"router/roster.go sane: hb.Slots >= 0, taken as true":                                      "free slots are not below 0, and not more than slots",
	"router/loop.go hear: a.decode.Epoch < hb.Peer.Epoch, taken as true":                       "of a life that begins with this heartbeat there is no attempt yet",
	"router/loop.go hear: c.decode.Epoch < hb.Peer.Epoch, taken as true":                       "of a life that begins with this heartbeat there is no attempt yet",
	"router/loop_attempt.go place: !l.dirty, taken as false":                                   "it saves a look at workers of which none has changed",
	"router/loop_attempt.go place: l.queue.n == 0, taken as false":                             "it saves a look at an empty queue",
	"router/loop_attempt.go try: r == nil":                                                     "no tenant is in the queue without a request",
	"router/loop_attempt.go try: !ok, taken as true":                                           "who has a choice is not stranded",
	"router/loop_attempt.go tokens: a.resumed == 0":                                            "it saves a copy",
	"router/loop_attempt.go shut: w != nil, taken as true":                                     kept,
	"router/loop_end.go close: w != nil, taken as true":                                        kept,
	"router/loop_end.go due: w == nil, taken as false":                                         kept,
	"router/loop_end.go expire: l.queue.n == 0":                                                "it saves a look at an empty queue",
	"router/http_generate.go endOf: ctx.Err() != nil, taken as true":                           "no error is the error of a context that goes on",
	"router/sse.go stream: out.data(answer.Tokens(p.Tokens)...) == nil, taken as true":         "a client that cannot be written to gets nothing more",
	"decode/handoff.go ended: err != nil":                                                      assertion,
	"decode/handoff.go ended: err != nil (2)":                                                  assertion,
	"decode/loop_claim.go promise: err != nil (2)":                                             assertion,
	"decode/loop_claim.go promise: err != nil (4)":                                             "a key that gives no secret is refused before any page is taken",
	"decode/loop_claim.go onClaim: err != nil (2)":                                             assertion,
	"decode/loop_frame.go copyFrame: err == nil":                                               assertion,
	"decode/loop_frame.go copyFrame: err != nil":                                               assertion,
	"decode/loop_frame.go onJournaled: err != nil":                                             assertion,
	"decode/loop_frame.go witness: err != nil":                                                 assertion,
	"decode/loop_frame.go judge: !err.IsZero()":                                                "time moves in ticks, each of which ends what is late; the gate's own check of the lease stands behind it",
	"decode/loop_frame.go onCopied: ok && !h.in.State.Over() && err.IsZero()":                  "pages under an open grant do not change hands: that is the ledger's, tried above",
	"decode/loop_frame.go onCopied: stale != nil":                                              "pages under an open grant do not change hands: that is the ledger's, tried above",
	"decode/loop_frame.go onManifest: e.From.Role != kvtransfer.RolePrefill, taken as false":   "a manifest of another peer than the one that claimed is refused, and only a prefill can have claimed",
	"decode/loop_frame.go onCopied: h.firstAt == 0":                                            "a time for the journal",
	"decode/loop_frame.go onManifest: h.in.Stated != nil && h.statedAt == 0":                   "a time for the journal",
	"prefill/loop_job.go takePages: a.out.State().Ended(), taken as false":                     "an ended attempt leaves the table in the turn in which it ended",
	"router/loop_attempt.go check: rv.PageSize <= 0, taken as false":                           "pages of no rows hold no rows: the other operand says the same",
	"router/sse.go stream: err != nil (2)":                                                     "a client that cannot be written to has gone, and its context ends the loop at the next turn",
	"router/place.go limit: decode.By == \"\", taken as false":                                 "no heartbeat with an empty pool gets into the roster",
}

const early = "what is looked at too early is left as it is"

const kept = "a decode with an attempt of this router is not forgotten"

const assertion = "an assertion on this process's own state: the loop stops if it fails, and nothing makes it fail"

// packages are the test binaries that twins run in. The slow tests of one run only where no other has caught.
var packages = []struct{ dir, slow string }{
	{"kvtransfer/page", ""},
	{"kvtransfer", ""},
	{"decode", "^(TestEveryOrderOfAHandoff|TestCancelAtEveryMoment|TestHostileWorld)$"},
	{"prefill", "^TestServiceOverNATS$"},
	{"router", "^TestHTTPTooLarge$"},
	{"router/console", ""},
	{simulator, ""},
}
