// Package script plays one hand-off's messages to decode's machine and prints what it answers and its whole state after each: the
// form of the scripts in testdata. Scripts of real hand-offs are made from what the journal and the tape recorded of them; they
// hold numbers, ids and tags, and no prompt, key or page.
//
// A script is lines of a verb and its fields. It begins with the reservation:
//
//	reservation attempt=<hand-off>-<n> decode=<peer> tenant=<slug> n= c= max= page-size= pages=<page>:<generation>[:<count>],...
//	            lease= deadline= hash=<64 digits> layers= row-bytes= dim=
//	at <tick>
//	owns pages=...                              what the ledger says when the gate asks, where it is not what was promised
//	claim by=<peer> id=<32 digits>
//	frame index= layers=<from>-<to> rows=<from>-<to> hidden= tag=<32 digits> [opens=false]
//	manifest by=<peer> n= c= sent= pages= frames= digest=<64 digits, or "tags": that of the frames received so far>
//	            [tenant=] [attempt=] [claim=] [reservation=]       where they are not the hand-off's
//	progress
//	journaled [code=]
//	rows [differ=<row>]
//	last [detail=<the layer and part that differ>]
//	finish
//	end code= detail=<the rest of the line>
//
// The gate is asked as soon as everything is there. Ticks are microseconds of decode's clock.
package script

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// Player has one hand-off's machine. The zero value is ready for a reservation.
type Player struct {
	m    *kvtransfer.Inbound
	j    kvtransfer.Judge
	now  kvtransfer.Tick
	tags map[uint32][16]byte // of frames that were received, for digest=tags
}

// Play plays a whole script and gives what is printed. An error is a line that cannot be read.
func Play(text string) (string, error) {
	var p Player
	var out strings.Builder
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		answer, err := p.Line(line)
		if err != nil {
			return out.String(), fmt.Errorf("script: line %d: %w", n, err)
		}
		out.WriteString(answer)
	}
	return out.String(), lines.Err()
}

// verbs are what a line may do.
var verbs = map[string]func(*Player, *fields) string{
	"reservation": (*Player).reservation, "owns": (*Player).owns, "claim": (*Player).claim, "frame": (*Player).frame, "manifest": (*Player).manifest,
	"progress":  (*Player).progress,
	"journaled": (*Player).journaled, "rows": (*Player).rows, "last": (*Player).last, "finish": (*Player).finish, "end": (*Player).end,
}

// Line plays one line and gives what is printed for it: the verb and the answer, then the state.
func (p *Player) Line(line string) (string, error) {
	verb, rest, _ := strings.Cut(line, " ")
	if verb == "at" {
		t, err := strconv.ParseInt(rest, 10, 64)
		p.now = kvtransfer.Tick(t)
		return "", err
	}
	do, ok := verbs[verb]
	if !ok || p.m == nil && verb != "reservation" {
		return "", fmt.Errorf("verb %q", verb)
	}
	f := parse(rest)
	answer := do(p, f)
	if err := f.done(); err != nil {
		return "", err
	}
	if p.m.Ready() {
		answer += ", " + verdict(p.m.Gate(p.j, p.now))
	}
	return fmt.Sprintf("%s -> %s\n  %s\n", verb, strings.TrimPrefix(answer, ", "), p.m.Dump()), nil
}

func verdict(v kvtransfer.Verdict) string {
	if v.OK {
		return "gate: ok"
	}
	return fmt.Sprintf("gate: %s: %s", v.Check, v.Error.Detail)
}

func (p *Player) reservation(f *fields) string {
	r := kvtransfer.Reservation{Decode: f.peer("decode"), Tenant: f.text("tenant"), N: f.int("n"), C: f.int("c"), MaxTokens: f.int("max"),
		PageSize: f.int("page-size"), Lease: kvtransfer.Tick(f.int("lease")), Pages: f.pages("pages")}
	r.Key = f.attempt("attempt")
	shape := kvtransfer.CutShape{Layers: f.int("layers"), RowBytes: f.int("row-bytes"), Dim: f.int("dim")}
	deadline := kvtransfer.Tick(f.int("deadline"))
	var hash [32]byte
	f.hex("hash", hash[:])
	p.m = kvtransfer.NewInbound(r, hash, shape, kvtransfer.NewLease(p.now, r.Lease, deadline-p.now))
	p.j = kvtransfer.Judge{Decode: r.Decode, Pages: r.Pages}
	p.tags = map[uint32][16]byte{}
	return "promised"
}

func (p *Player) owns(f *fields) string {
	p.j.Pages = f.pages("pages")
	return "noted"
}

func (p *Player) claim(f *fields) string {
	c := kvtransfer.Claim{Key: p.m.Key(), Reservation: p.m.Hash}
	from := f.peer("by")
	f.hex("id", c.Claim[:])
	answer, err := p.m.Claim(from, c, p.now)
	return [...]string{"", "bound", "again", "gone"}[answer] + because(err)
}

func because(err kvtransfer.Error) string {
	if err.IsZero() {
		return ""
	}
	return ": " + string(err.Code)
}

func (p *Player) frame(f *fields) string {
	h := kvtransfer.FrameHeader{Key: p.m.Key(), Claim: p.m.Claimed.Claim, Index: uint32(f.int("index")), Hidden: f.optional("hidden")}
	h.LayerFrom, h.LayerTo = f.span("layers")
	h.RowFrom, h.RowTo = f.span("rows")
	var tag [16]byte
	f.hex("tag", tag[:])
	opens := f.word("opens", "true") == "true"
	if f.err != nil || h.Hidden < 0 || h.Hidden > maxDim {
		return ""
	}
	switch p.m.Frame(h, tag, p.now) {
	case kvtransfer.FrameIgnore:
		return "ignore"
	case kvtransfer.FrameRefuse:
		return "refuse"
	}
	o := kvtransfer.Opening{OK: opens, Bytes: p.m.Shape.FrameBytes(h), Hidden: make([]float32, h.Hidden)}
	answer, err := p.m.Opened(h, tag, o, p.now)
	if answer == kvtransfer.OpenCopy {
		p.tags[h.Index] = tag
		p.m.Copied(h.Index, kvtransfer.Error{}, p.now)
	}
	return [...]string{"", "copy", "ignore", "count", "corrupt"}[answer] + because(err)
}

const maxDim = 1 << 20

func (p *Player) manifest(f *fields) string {
	m := kvtransfer.Manifest{Key: p.m.Key(), Claim: p.m.Claimed.Claim, Reservation: p.m.Hash, Tenant: p.m.Reservation.Tenant, N: f.int("n"), C: f.int("c"),
		Sent: f.int("sent"), Pages: f.int("pages"), Frames: f.int("frames")}
	from := f.peer("by")
	if digest := f.text("digest"); digest == "tags" {
		m.Digest = p.digest()
	} else if b, err := hex.DecodeString(digest); err == nil && len(b) == len(m.Digest) {
		m.Digest = [32]byte(b)
	} else {
		f.fail("digest", digest)
	}
	p.otherwise(f, &m)
	if f.err != nil {
		return ""
	}
	answer, v := p.m.Manifest(from, m, p.j, p.now)
	s := [...]string{"", "taken", "ignore", "refuse", "corrupt"}[answer]
	if v.Check != "" {
		s += " by " + v.Check + ": " + v.Error.Detail
	}
	return s
}

// otherwise takes what a manifest says other than the hand-off's own names.
func (p *Player) otherwise(f *fields, m *kvtransfer.Manifest) {
	m.Tenant = f.word("tenant", m.Tenant)
	if _, ok := f.values["attempt"]; ok {
		m.Key = f.attempt("attempt")
	}
	if _, ok := f.values["claim"]; ok {
		f.hex("claim", m.Claim[:])
	}
	if _, ok := f.values["reservation"]; ok {
		f.hex("reservation", m.Reservation[:])
	}
}

// digest is that of the frames received so far.
func (p *Player) digest() [32]byte {
	var tags [][16]byte
	for _, fr := range p.m.Frames() {
		tags = append(tags, p.tags[fr.Header.Index])
	}
	return kvtransfer.DigestTags(tags)
}

func (p *Player) progress(*fields) string {
	return fmt.Sprint(p.m.Progress(p.m.Prefill, kvtransfer.Progress{Key: p.m.Key(), Claim: p.m.Claimed.Claim}, p.now))
}

func (p *Player) journaled(f *fields) string {
	err := kvtransfer.Error{Code: kvtransfer.Code(f.word("code", ""))}
	if !p.m.Journaled(err) {
		return "not admitted"
	}
	p.m.Witness()
	return "admitted; the witness reads"
}

func (p *Player) rows(f *fields) string {
	row := -1
	if s := f.word("differ", ""); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			f.fail("differ", s)
		}
		row = n
	}
	p.m.WitnessedRows(row)
	return agree(row < 0)
}

func (p *Player) last(f *fields) string {
	differs := f.word("detail", "")
	p.m.WitnessedLast(differs)
	return agree(differs == "")
}

func agree(yes bool) string {
	if yes {
		return "agree"
	}
	return "differ"
}

func (p *Player) finish(*fields) string {
	p.m.Finish()
	return p.m.State.String()
}

func (p *Player) end(f *fields) string {
	p.m.End(kvtransfer.Error{Code: kvtransfer.Code(f.text("code")), Detail: f.word("detail", "")})
	return p.m.State.String()
}

// Pages writes pages as runs: <page>:<generation>, or <page>:<generation>:<count> for pages that follow each other.
func Pages(s []page.Slot) string {
	var out []string
	for i := 0; i < len(s); {
		n := 1
		for i+n < len(s) && s[i+n].Page == s[i].Page+page.ID(n) && s[i+n].Gen == s[i].Gen {
			n++
		}
		run := fmt.Sprintf("%d:%d", s[i].Page, s[i].Gen)
		if n > 1 {
			run += fmt.Sprintf(":%d", n)
		}
		out = append(out, run)
		i += n
	}
	return strings.Join(out, ",")
}
