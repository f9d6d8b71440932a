package main

// target is a function whose checks are taken out: every condition of it that guards something.
type target struct {
	area string
	file string
	fns  []string // nil = all of the file
	ands bool     // also take each operand of && as true
}

// targets is the table of what is taken out. An area is a row of headings in docs/testing.md.
var targets = []target{
	{"gate", "kvtransfer/gate.go", []string{"judge"}, true},
	{"gate", "kvtransfer/gate_count.go", nil, true},
	{"gate", "kvtransfer/gate_identity.go", nil, true},
	{"gate", "kvtransfer/gate_content.go", nil, true},
	{"gate", "kvtransfer/lease.go", nil, true},
	{"hand-off on decode", "kvtransfer/inbound.go", []string{"Claim", "unfit", "Late", "mine", "Progress", "Abort", "End", "Finish", "orElse"}, false},
	{"hand-off on decode", "kvtransfer/inbound_frames.go", nil, false},
	{"hand-off on decode", "kvtransfer/inbound_verdict.go", nil, false},
	{"hand-off on decode", "kvtransfer/witness.go", nil, false},
	{"ledger", "kvtransfer/page/ledger.go", nil, true},
	{"ledger", "kvtransfer/page/holds.go", nil, true},
	{"ledger", "kvtransfer/page/release.go", nil, true},
	{"admission", "router/place.go", nil, false},
	{"admission", "router/queue.go", []string{"room"}, false},
	{"admission", "router/loop.go", []string{"submit", "deadline", "cancelAsked", "statusAsked"}, false},
	{"admission", "router/loop_attempt.go", []string{"reserved", "refusedBy", "promised", "check", "crowded", "jobStored"}, false},
	{"admission", "decode/plan.go", []string{"admit", "admitShape", "fits"}, false},
	{"admission", "decode/loop_claim.go", nil, false},
	{"admission", "prefill/loop_job.go", []string{"job", "refuse", "strange", "limit", "known", "takePages", "claimed", "gone", "cancel", "spoken"}, false},
	{"hand-off on decode", "decode/loop_frame.go", nil, false},
	{"hand-off on decode", "decode/handoff.go", []string{"end", "ended", "tellPrefill"}, false},
	{"status", "decode/loop_reply.go", nil, false},
	{"status", "router/loop_replies.go", []string{"replied", "apply", "give", "ended", "orBug", "resent"}, false},
	{"status", "router/loop_end.go", []string{"after", "again", "acknowledged", "finish"}, false},
	{"status", "router/http_generate.go", []string{"generate", "started", "endOf", "collect"}, false},
	{"status", "router/http_routes.go", []string{"AsError", "fail"}, false},
	{"status", "router/sse.go", []string{"stream"}, false},
	{"status", "router/nats.go", []string{"generate", "stream"}, false},
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
	{"status", "router/loop_end.go", "finish", `end.Finish, end.Prompt, end.Output = "", len(r.prompt), len(r.output)`, ""},
	{"status", "router/loop_end.go", "lose", "l.do(SendCancel{Key: a.key, To: a.decode, Error: err})", ""},
	{"status", "router/loop_end.go", "close", "l.do(Forget{Key: a.key})", ""},
	{"status", "router/loop_end.go", "again", "r.losses++", ""},
	{"status", "router/http_routes.go", "fail", "h.send(w, meaning.HTTP, openai.EncodeError(e))", "h.send(w, 200, openai.EncodeError(e))"},
}

// spared are checks whose absence nobody could see, with the reason: what they would refuse cannot come about by the calls there
// are, or another check in front of them refuses the same in the same words. Keys are file and name.
var spared = map[string]string{
	"kvtransfer/page/holds.go Settle: !a.leaving, taken as true":                             "Grow refuses an owner that leaves, whatever was settled",
	"kvtransfer/page/release.go Zeroed: p.state != Zeroing, taken as false":                  "a page that was given out is Zeroing until it is freed, which forgets that it was given out",
	"decode/handoff.go ended: err != nil":                                                    assertion,
	"decode/handoff.go ended: err != nil (2)":                                                assertion,
	"decode/loop_claim.go promise: err != nil (2)":                                           assertion,
	"decode/loop_claim.go promise: err != nil (4)":                                           "a key that gives no secret is refused before any page is taken",
	"decode/loop_claim.go onClaim: err != nil (2)":                                           assertion,
	"decode/loop_frame.go copyFrame: err == nil":                                             assertion,
	"decode/loop_frame.go copyFrame: err != nil":                                             assertion,
	"decode/loop_frame.go onJournaled: err != nil":                                           assertion,
	"decode/loop_frame.go witness: err != nil":                                               assertion,
	"decode/loop_frame.go judge: !err.IsZero()":                                              "time moves in ticks, each of which ends what is late; the gate's own check of the lease stands behind it",
	"decode/loop_frame.go onCopied: ok && !h.in.State.Over() && err.IsZero()":                "pages under an open grant do not change hands: that is the ledger's, tried above",
	"decode/loop_frame.go onCopied: stale != nil":                                            "pages under an open grant do not change hands: that is the ledger's, tried above",
	"decode/loop_frame.go onManifest: e.From.Role != kvtransfer.RolePrefill, taken as false": "a manifest of another peer than the one that claimed is refused, and only a prefill can have claimed",
	"decode/loop_frame.go onCopied: h.firstAt == 0":                                          "a time for the journal",
	"decode/loop_frame.go onManifest: h.in.Stated != nil && h.statedAt == 0":                 "a time for the journal",
	"prefill/loop_job.go takePages: a.out.State().Ended(), taken as false":                   "an ended attempt leaves the table in the turn in which it ended",
	"router/loop_attempt.go check: rv.PageSize <= 0, taken as false":                         "pages of no rows hold no rows: the other operand says the same",
	"router/sse.go stream: err != nil (2)":                                                   "a client that cannot be written to has gone, and its context ends the loop at the next turn",
	"router/place.go limit: decode.By == \"\", taken as false":                               "no heartbeat with an empty pool gets into the roster",
}

const assertion = "an assertion on this process's own state: the loop stops if it fails, and nothing makes it fail"

// packages are the test binaries that twins run in. The slow tests of one run only where no other has caught.
var packages = []struct{ dir, slow string }{
	{"kvtransfer/page", ""},
	{"kvtransfer", ""},
	{"decode", "^(TestEveryOrderOfAHandoff|TestCancelAtEveryMoment|TestHostileWorld)$"},
	{"prefill", "^TestServiceOverNATS$"},
	{"router", "^TestHTTPTooLarge$"},
}
