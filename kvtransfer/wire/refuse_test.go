package wire

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// TestLimits breaks each limit once. The encoder says so with the numbers, and so does the decoder of bytes that were made
// without the check.
func TestLimits(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	nan := float32(math.NaN())
	for _, c := range []struct {
		says string
		m    any
	}{
		{"wire: reserve: tenant: length 65, limit 64", &kvtransfer.Reserve{Tenant: long(65)}},
		{"wire: reserve: tenant: byte 1 is 0x2e, not of [a-z0-9-]", &kvtransfer.Reserve{Tenant: "a.b"}},
		{"wire: reserve: tokens: length 8388612, limit 8388608", &kvtransfer.Reserve{Tokens: make([]int32, MaxTokens+1)}},
		{"wire: reserve: tokens: token 1 is -7", &kvtransfer.Reserve{Tokens: []int32{5, -7}}},
		{"wire: reserve: prompt: -1, want [0, 2147483647]", &kvtransfer.Reserve{Prompt: -1}},
		{"wire: reserve: max tokens: 2147483648, want [0, 2147483647]", &kvtransfer.Reserve{MaxTokens: MaxRows}},
		{"wire: reserve: deadline left: 9007199254740993, want", &kvtransfer.Reserve{DeadlineLeft: MaxTicks + 1}},
		{"wire: reserve: id: length 33, limit 32", &kvtransfer.Reserve{Router: kvtransfer.Peer{ID: long(33)}}},
		{"wire: reserve: role: length 33, limit 32", &kvtransfer.Reserve{Router: kvtransfer.Peer{Role: kvtransfer.Role(long(33))}}},
		{"wire: reserve: temperature: not a number", &kvtransfer.Reserve{Sampling: kvtransfer.Sampling{Temperature: nan}}},
		{"wire: reserve: top_k: -1, want", &kvtransfer.Reserve{Sampling: kvtransfer.Sampling{TopK: -1}}},
		{"wire: reserve: logit bias: count 301, limit 300", &kvtransfer.Reserve{Sampling: kvtransfer.Sampling{LogitBias: make([]kvtransfer.Bias, 301)}}},
		{"wire: reserve: token: -1, want", &kvtransfer.Reserve{Sampling: kvtransfer.Sampling{LogitBias: []kvtransfer.Bias{{Token: -1}}}}},
		{"wire: reserve: logprobs: 21, want [-1, 20]", &kvtransfer.Reserve{Sampling: kvtransfer.Sampling{Logprobs: 21}}},
		{"wire: reserve: stop: count 65, limit 64", &kvtransfer.Reserve{Sampling: kvtransfer.Sampling{Stop: make([]string, 65)}}},
		{"wire: reserve: stop: length 4097, limit 4096", &kvtransfer.Reserve{Sampling: kvtransfer.Sampling{Stop: []string{long(4097)}}}},
		{"wire: reserve: stop tokens: length 4100, limit 4096", &kvtransfer.Reserve{Sampling: kvtransfer.Sampling{StopTokens: make([]int32, 1025)}}},
		{"wire: reservation: pages: count 524289, limit 524288", &kvtransfer.Reservation{Pages: make([]page.Slot, MaxPages+1)}},
		{"wire: reservation: n: -3, want", &kvtransfer.Reservation{N: -3}},
		{"wire: refused: code: length 65, limit 64", &kvtransfer.Refused{Error: kvtransfer.Error{Code: kvtransfer.Code(long(65))}}},
		{"wire: refused: detail: length 4097, limit 4096", &kvtransfer.Refused{Error: kvtransfer.Error{Detail: long(4097)}}},
		{"wire: refused: param: length 257, limit 256", &kvtransfer.Refused{Error: kvtransfer.Error{Param: long(257)}}},
		{"wire: progress: rows: -1, want", &kvtransfer.Progress{Rows: -1}},
		{"wire: manifest: sent: -1, want", &kvtransfer.Manifest{Sent: -1}},
		{"wire: reply body: tokens: count 4097, limit 4096", &kvtransfer.ReplyBody{Tokens: make([]kvtransfer.Token, 4097)}},
		{"wire: reply body: text: length 65537, limit 65536", &kvtransfer.ReplyBody{Tokens: []kvtransfer.Token{{Text: make([]byte, 65537)}}}},
		{"wire: reply body: top: count 21, limit 20", &kvtransfer.ReplyBody{Tokens: []kvtransfer.Token{{Top: make([]kvtransfer.TopLogprob, 21)}}}},
		{"wire: reply body: logprob: not a number", &kvtransfer.ReplyBody{Tokens: []kvtransfer.Token{{Logprob: nan}}}},
		{"wire: reply body: text: length 1048577, limit 1048576", &kvtransfer.ReplyBody{End: &kvtransfer.End{Text: make([]byte, MaxHeldText+1)}}},
		{"wire: reply body: finish: length 65, limit 64", &kvtransfer.ReplyBody{End: &kvtransfer.End{Finish: kvtransfer.Finish(long(65))}}},
		{"wire: resent: replies: count 4097, limit 4096", &kvtransfer.Resent{Replies: make([]kvtransfer.Reply, 4097)}},
		{"wire: heartbeat: model: length 257, limit 256", &kvtransfer.Heartbeat{Model: long(257)}},
		{"wire: pages: state: 6, want [0, 5]", &kvtransfer.Pages{Owners: []kvtransfer.PageOwner{{State: 6}}}},
		{"wire: pages: owners: count 513, limit 512", &kvtransfer.Pages{Owners: make([]kvtransfer.PageOwner, 513)}},
		{"wire: pages: runs: count 16385, limit 16384", &kvtransfer.Pages{Owners: []kvtransfer.PageOwner{{Runs: make([]page.Run, 16385)}}}},
		{"wire: heartbeat: pages: -1, want", &kvtransfer.Heartbeat{Pages: page.Counts{Owned: -1}}},
	} {
		if _, err := Encode(c.m); err == nil || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("encode: %v, want %q", err, c.says)
		}
		what, fields := describe(c.m)
		raw, _ := write(what, fields)
		if err := read(what, raw, fields); err == nil || (!strings.HasPrefix(err.Error(), c.says) && len(raw) <= MaxMessage) {
			t.Errorf("decode: %v, want %q", err, c.says)
		}
	}
}

// Infinite logprobs are numbers.
func TestInfiniteLogprob(t *testing.T) {
	m := kvtransfer.ReplyBody{Tokens: []kvtransfer.Token{{Logprob: float32(math.Inf(-1))}}}
	b, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode[kvtransfer.ReplyBody](b); err != nil || got.Tokens[0].Logprob != m.Tokens[0].Logprob {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNoMessage(t *testing.T) {
	if _, err := Encode(kvtransfer.Frame{}); err == nil || !strings.Contains(err.Error(), "kvtransfer.Frame is no message") {
		t.Errorf("encode: %v", err)
	}
	if _, err := Decode[int]([]byte{Version, 1}); err == nil || !strings.Contains(err.Error(), "int is no message") {
		t.Errorf("decode: %v", err)
	}
	if _, err := Encode(kvtransfer.Job{Reservation: make([]byte, MaxMessage), Tokens: make([]int32, 64)}); err == nil || !strings.Contains(err.Error(), "limit 8388608") {
		t.Errorf("a job beyond the bus: %v", err)
	}
}

// TestHostileBodies gives each decoder bytes that kill or fool a plain msgpack decoder.
func TestHostileBodies(t *testing.T) {
	deep := append([]byte{Version}, []byte(strings.Repeat("\x91", 1<<20))...)
	walked := map[string]bool{"array of 4 G": true, "map of 2 G": true, "4 GiB of bytes": true, "deep": true, "never used": true,
		"trailing byte": true, "cut": true}
	for _, b := range bodies {
		good := golden()[b.name]
		for name, bad := range map[string][]byte{
			"nothing":           {},
			"version alone":     {Version},
			"other version":     append([]byte{Version + 1}, good[1:]...),
			"array of 4 G":      {Version, 0xdd, 0xff, 0xff, 0xff, 0xff},
			"map of 2 G":        {Version, 0xdf, 0x7f, 0xff, 0xff, 0xff},
			"4 GiB of bytes":    {Version, 0xc6, 0xff, 0xff, 0xff, 0xff, 1},
			"deep":              deep,
			"never used":        {Version, 0xc1},
			"nil":               {Version, 0xc0},
			"trailing byte":     append(append([]byte{}, good...), 0),
			"cut":               good[:len(good)-1],
			"one field more":    append(append([]byte{Version, good[1] + 1}, good[2:]...), 0xc0),
			"array of 16 bits":  append([]byte{Version, 0xdc, 0, good[1] & 15}, good[2:]...),
			"a map of no pairs": {Version, 0x80},
			"too long":          append([]byte{Version}, make([]byte, MaxMessage)...),
		} {
			m, err := b.decode(bad)
			if err == nil || !strings.HasPrefix(err.Error(), "wire: "+b.name+": ") {
				t.Errorf("%s: %s: %v, %v", b.name, name, m, err)
			}
			if walked[name] && err != nil && !strings.Contains(err.Error(), "wire: msgpack: ") {
				t.Errorf("%s: %s: decoded before the length walk: %v", b.name, name, err)
			}
		}
	}
}

// Each single flipped bit either is refused or gives another message: none is ignored.
func TestNoBitIsIgnored(t *testing.T) {
	for _, b := range bodies {
		good := golden()[b.name]
		for i := range len(good) * 8 {
			bad := append([]byte{}, good...)
			bad[i/8] ^= 1 << (i % 8)
			m, err := b.decode(bad)
			if err != nil {
				continue
			}
			if again, err := Encode(m); err != nil || string(again) == string(good) {
				t.Errorf("%s: bit %d: %v", b.name, i, err)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	sig := make([]byte, SigSize)
	from := kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 3}
	good := append(Unsigned(kvtransfer.KindClaimed, from, []byte("body")), sig...)
	u32 := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
	join := func(parts ...[]byte) (b []byte) {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	for _, c := range []struct {
		says string
		b    []byte
	}{
		{"wire: envelope: length 0", nil},
		{"wire: envelope: length 8388609, limit 8388608", make([]byte, MaxMessage+1)},
		{"wire: envelope: version 2, want 1", join([]byte{2}, good[1:])},
		{"wire: envelope: sender: length of 4 bytes, 3 left", good[:5]},
		{"wire: envelope: sender: length 513, limit 512", join(good[:2], u32(513), make([]byte, 900))},
		{"wire: envelope: sender: length 500, limit 512, 8 left", join(good[:2], u32(500), make([]byte, 8))},
		{"wire: envelope: body: length 4294967295", join(good[:2], u32(2), []byte{Version, 0x90}, u32(math.MaxUint32), sig)},
		{"wire: envelope: signature: length 63, want 64", good[:len(good)-1]},
		{"wire: envelope: signature: length 65, want 64", join(good, []byte{0})},
		{"wire: envelope: peer: fields 0, want 3", join(good[:2], u32(2), []byte{Version, 0x90}, u32(0), sig)},
		{`wire: envelope: kind 6 from role "prefill"`, append(Unsigned(kvtransfer.KindClaimed, kvtransfer.Peer{Role: kvtransfer.RolePrefill}, nil), sig...)},
		{`wire: envelope: kind 12 from role "prefill"`, append(Unsigned(kvtransfer.KindFrame, kvtransfer.Peer{Role: kvtransfer.RolePrefill}, nil), sig...)},
		{`wire: envelope: kind 99 from role "decode"`, append(Unsigned(99, from, nil), sig...)},
		{"wire: envelope: id: byte 1 is 0x2e", append(Unsigned(kvtransfer.KindClaimed, kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d.>"}, nil), sig...)},
	} {
		if _, err := Open(c.b); err == nil || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}

func TestFramesRefused(t *testing.T) {
	good := EncodeFrame(sealedFrame(&counting{}))
	head := int(binary.LittleEndian.Uint32(good))
	short := EncodeFrame(kvtransfer.Frame{Sealed: make([]byte, TagSize-1)})
	for _, c := range []struct {
		says string
		b    []byte
	}{
		{"wire: frame: header: length of 4 bytes, 0 left", nil},
		{"wire: frame: header: length 513, limit 512", binary.LittleEndian.AppendUint32(nil, 513)},
		{"wire: frame: header: length 100, limit 512, 0 left", binary.LittleEndian.AppendUint32(nil, 100)},
		{"wire: frame: version", make([]byte, 4)},
		{"wire: frame: sealed bytes 15, tag 16", short},
		{"wire: frame: sealed bytes 0, tag 16", good[:4+head]},
		{"wire: frame: length 8388609, limit 8388608", make([]byte, MaxMessage+1)},
		{"wire: frame: row from: -4, want", EncodeFrame(kvtransfer.Frame{Header: kvtransfer.FrameHeader{RowFrom: -4}})},
		{"wire: frame: layer to: 4096, want", EncodeFrame(kvtransfer.Frame{Header: kvtransfer.FrameHeader{LayerTo: MaxLayers}})},
		{"wire: frame: hidden: 1048576, want", EncodeFrame(kvtransfer.Frame{Header: kvtransfer.FrameHeader{Hidden: MaxDim}})},
	} {
		if _, err := DecodeFrame(c.b); err == nil || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	if _, err := DecodeReply(good); err == nil || !strings.HasPrefix(err.Error(), "wire: reply: reply header: fields 8, want 3") {
		t.Errorf("a frame as a reply: %v", err)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		says string
		b    string
	}{
		{"", "\x00"},
		{"", "\xc0"},
		{"", "\x92\x01\x02"},
		{"", "\x82\x01\x02\x03\x04"},
		{"", "\xc4\x02ab"},
		{"", "\xd9\x01a"},
		{"", "\xc7\x01\x05a"},
		{"", "\xd8\x05" + strings.Repeat("a", 16)},
		{"", "\xdc\x00\x01\xc3"},
		{"", strings.Repeat("\x91", maxDepth-1) + "\x90"},
		{"value missing at byte 0 of 0", ""},
		{"1 values, 0 bytes left", "\x91"},
		{"2 bytes follow the value of 1", "\x00\x00\x00"},
		{"byte 0 is 0xc1", "\xc1"},
		{"length of 4 bytes, 2 left", "\xc6\x00\x00"},
		{"3 bytes and 0 values, 2 bytes left", "\xa3ab"},
		{"0 bytes and 4294967295 values, 0 bytes left", "\xdd\xff\xff\xff\xff"},
		{"0 bytes and 8589934590 values, 1 bytes left", "\xdf\xff\xff\xff\xff\x00"},
		{"nesting at byte 8, limit 8", strings.Repeat("\x91", maxDepth) + "\x90"},
	} {
		err := Check([]byte(c.b))
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%x: %v, want %q", c.b, err, c.says)
		}
	}
}
