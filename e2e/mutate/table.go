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
	{"admission", "decode/plan.go", []string{"admit", "admitShape"}, false},
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
var spared = map[string]string{}

// packages are the test binaries that twins run in. The slow tests of one run only where no other has caught.
var packages = []struct{ dir, slow string }{
	{"kvtransfer/page", ""},
	{"kvtransfer", ""},
	{"decode", "^(TestEveryOrderOfAHandoff|TestCancelAtEveryMoment|TestHostileWorld)$"},
	{"prefill", "^TestServiceOverNATS$"},
	{"router", "^TestHTTPTooLarge$"},
}
