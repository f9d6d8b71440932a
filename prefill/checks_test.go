package prefill

import (
	"encoding/binary"
	"strings"
	"testing"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
)

// redigest makes a job's digest that of its tokens, so that nothing else about it is wrong.
func redigest(j *Job) {
	j.Reservation.Digest = seal.PromptDigest(testPrompt, j.Reservation.Tenant, j.Tokens)
}

// spoiled is a job that is changed after its reservation was written down: some changes no message can carry.
func spoiled(id byte, n int, change func(*Job)) Job {
	j := testJob(id, n, nil)
	change(&j)
	return j
}

// TestRefuseEachAlone: each thing that can be wrong with a job is named, and nothing is computed.
func TestRefuseEachAlone(t *testing.T) {
	for _, c := range []struct {
		what   string
		spoil  func(*Job)
		config func(*LoopConfig)
		code   kvtransfer.Code
		detail string
	}{
		{"nothing", func(*Job) {}, nil, kvtransfer.OK, ""},
		{"no tokens", func(j *Job) { j.Tokens, j.Reservation.N = nil, 0; redigest(j) }, nil, kvtransfer.HandoffCount, "reserved 0, job 0"},
		{"a token less", func(j *Job) { j.Tokens = j.Tokens[:5]; redigest(j) }, nil, kvtransfer.HandoffCount, "reserved 6, job 5"},
		{"cached rows below zero", func(j *Job) { j.Reservation.C = -1 }, nil, kvtransfer.HandoffCount, "cached rows -1 of 6"},
		{"all rows cached", func(j *Job) { j.Reservation.C = 6 }, nil, kvtransfer.HandoffCount, "cached rows 6 of 6"},
		{"page size zero", func(j *Job) { j.Reservation.PageSize = 0 }, nil, kvtransfer.HandoffCount, "pages of 0 rows"},
		{"page size below zero", func(j *Job) { j.Reservation.PageSize = -4 }, nil, kvtransfer.HandoffCount, "pages of -4 rows"},
		{"a page less", func(j *Job) { j.Reservation.Pages = j.Reservation.Pages[:1] }, nil, kvtransfer.HandoffCount, "reserved 1 pages of 4 rows"},
		{"another prompt", func(j *Job) { j.Tokens = append([]int32{99}, j.Tokens[1:]...) }, nil, kvtransfer.HandoffIdentity, "digest"},
		{"another tenant", func(j *Job) { j.Reservation.Tenant = "bank" }, nil, kvtransfer.HandoffIdentity, "digest"},
		{"a token below zero", func(j *Job) { j.Tokens[2] = -1; redigest(j) }, nil, kvtransfer.InvalidRequest, "position 2"},
		{"a token too large", func(j *Job) { j.Tokens[2] = 100; redigest(j) }, nil, kvtransfer.InvalidRequest, "position 2"},
		{"longer than the flag", func(*Job) {}, func(c *LoopConfig) { c.MaxModelLen = 5 }, kvtransfer.ContextLengthExceeded, "prompt 6 tokens, limit 5 (max-model-len)"},
		{"longer than the context", func(*Job) {}, func(c *LoopConfig) { c.Info.Context = 5 }, kvtransfer.ContextLengthExceeded, "limit 5 (model context)"},
		{"longer than the pool", func(*Job) {}, func(c *LoopConfig) { c.Info.Pages = 1 }, kvtransfer.ContextLengthExceeded, "limit 4 (prefill pool)"},
		{"flag above the pool", func(*Job) {}, func(c *LoopConfig) { c.MaxModelLen = 50 }, kvtransfer.OK, ""},
		{"longer than the pool, flag above it", func(*Job) {}, func(c *LoopConfig) { c.MaxModelLen, c.Info.Pages = 50, 1 }, kvtransfer.ContextLengthExceeded, "limit 4 (prefill pool)"},
		{"another model, compute may differ", func(j *Job) { j.Reservation.Fingerprints.Model[0]++ }, func(c *LoopConfig) { c.MixedCompute = true }, kvtransfer.Mismatch, "model"},
		{"another layout, compute may differ", func(j *Job) { j.Reservation.Fingerprints.Layout[0]++ }, func(c *LoopConfig) { c.MixedCompute = true }, kvtransfer.Mismatch, "layout"},
		{"another compute, which may differ", func(j *Job) { j.Reservation.Fingerprints.Compute[0]++ }, func(c *LoopConfig) { c.MixedCompute = true }, kvtransfer.OK, ""},
		{"another compute", func(j *Job) { j.Reservation.Fingerprints.Compute[0]++ }, nil, kvtransfer.Mismatch, "compute"},
	} {
		cfg := testConfig()
		if c.config != nil {
			c.config(&cfg)
		}
		l := New(cfg)
		l.Handle(Tick{Now: 1})
		if err := l.refuse(spoiled(1, 6, c.spoil)); err.Code != c.code || !strings.Contains(err.Detail, c.detail) {
			t.Errorf("%s: %q %s, want %q %q", c.what, err.Code, err.Detail, c.code, c.detail)
		}
	}
}

// TestSameJobAgain: while an attempt is worked on, and while its pages are still being zeroed, its job changes nothing here.
func TestSameJobAgain(t *testing.T) {
	l := New(testConfig())
	l.Handle(Tick{Now: 1})
	count := func(fx []Effect) (claims, halts int) {
		for _, e := range fx {
			switch e.(type) {
			case SendClaim:
				claims++
			case Halt:
				halts++
			}
		}
		return claims, halts
	}
	j := testJob(1, 6, nil)
	if claims, _ := count(l.Handle(j)); claims != 1 {
		t.Fatalf("%d claims", claims)
	}
	ignored := l.Stats().Ignored
	if claims, _ := count(l.Handle(j)); claims != 0 || l.Stats().Ignored != ignored+1 {
		t.Errorf("a second time: %d claims, %d ignored", claims, l.Stats().Ignored)
	}
	a := l.attempts[0]
	l.Handle(Gone{From: testDecode, Msg: kvtransfer.Gone{Key: a.out.Key(), Claim: a.out.ClaimID()}})
	if l.step != nil { // its rows are with the engine
		l.Handle(ChunkDone{Step: l.steps, Hidden: make([][]float32, len(l.step.parts))})
	}
	if _, halts := count(l.Handle(j)); halts > 0 {
		t.Error("the same attempt while its pages are zeroed stops the worker")
	}
	if err := l.Verify(); err != nil {
		t.Error(err)
	}
}

// FuzzHandle feeds one loop events made of bytes. It never panics, keeps its invariants, and no message from outside stops it.
func FuzzHandle(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Add([]byte{0, 1, 6, 0, 0, 2, 1, 0, 9, 1, 0, 8, 0, 1, 3, 1, 0, 4, 1, 1, 0, 5, 1, 2, 7, 7, 7, 1, 2, 3})
	f.Fuzz(func(t *testing.T, in []byte) {
		s := newScript()
		next := func() int {
			if len(in) == 0 {
				return 0
			}
			b := in[0]
			in = in[1:]
			return int(b)
		}
		for steps := 0; len(in) > 0 && steps < 200; steps++ {
			key := kvtransfer.Key{ID: kvtransfer.HandoffID{byte(next()%4 + 1)}, Attempt: uint32(next()%2 + 1)}
			from := []kvtransfer.Peer{testDecode, {Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 8}, testPeer}[next()%3]
			claim := s.claims[key]
			if next()%4 == 0 {
				binary.BigEndian.PutUint16(claim[:], uint16(next()))
			}
			id := FrameID{Key: key, Claim: claim, Index: uint32(next() % 5)}
			switch next() % 12 {
			case 0, 1:
				s.send(spoiled(byte(next()%4+1), next()%40+1, func(j *Job) {
					j.Reservation.N += next()%3 - 1
					j.Reservation.C = next()%3 - 1
					j.Reservation.PageSize = next() % 6
				}))
			case 2, 3:
				s.send(Claimed{From: from, Msg: kvtransfer.Claimed{Key: key, Claim: claim, LeaseLeft: kvtransfer.Tick(next()), DeadlineLeft: kvtransfer.Tick(next()-8) * kvtransfer.Second}})
			case 4:
				s.send(Gone{From: from, Msg: kvtransfer.Gone{Key: key, Claim: claim}})
			case 5:
				s.send(Cancel{From: from, Msg: kvtransfer.Cancel{Key: key}})
			case 6:
				s.send(DecodeHeartbeat{From: from})
			case 7:
				s.now += kvtransfer.Tick(next()*next()) * kvtransfer.Millisecond
				s.send(Tick{Now: s.now})
			case 8:
				s.send(FrameSealed{Frame: FrameID{Key: key, Claim: kvtransfer.ClaimID{9}, Index: id.Index}})
			case 9:
				s.send(ManifestStored{Key: key, Claim: claim})
			case 10:
				s.send(JobRefused{})
			case 11:
				s.send(ChunkDone{Step: uint64(next()) + 1000})
			}
			if s.loop.halted {
				t.Fatalf("halted\n%s", s.loop.Dump())
			}
			if err := s.loop.Verify(); err != nil {
				t.Fatalf("%v\n%s", err, s.loop.Dump())
			}
		}
	})
}

// TestJobsThatNobodyAskedFor: a worker takes no more hand-offs than it has slots, whatever is sent.
func TestJobsThatNobodyAskedFor(t *testing.T) {
	l := New(testConfig())
	l.Handle(Tick{Now: 1})
	refused := 0
	for id := range byte(8) {
		for _, fx := range l.Handle(testJob(id+1, 3, nil)) {
			if a, ok := fx.(SendAbort); ok && a.Msg.Error.Code == kvtransfer.Overloaded {
				refused++
			}
		}
		if err := l.Verify(); err != nil {
			t.Fatal(err)
		}
	}
	if most := testConfig().Slots + kvtransfer.DirectSlots; len(l.attempts) > most || refused < 8-most {
		t.Errorf("%d hand-offs, at most %d; %d refused", len(l.attempts), most, refused)
	}
}
