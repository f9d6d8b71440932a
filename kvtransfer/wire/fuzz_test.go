package wire

import (
	"bytes"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// FuzzBody gives bytes to the decoder of one message: whatever it accepts encodes to the same bytes.
func FuzzBody(f *testing.F) {
	for i, b := range bodies {
		f.Add(byte(i), golden()[b.name])
	}
	f.Fuzz(func(t *testing.T, which byte, raw []byte) {
		b := bodies[int(which)%len(bodies)]
		m, err := b.decode(raw)
		if err != nil {
			return
		}
		if again, err := Encode(m); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%s: %x decodes to %+v, which encodes to %x, %v", b.name, raw, m, again, err)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(golden()["frame"])
	f.Fuzz(func(t *testing.T, raw []byte) {
		if m, err := DecodeFrame(raw); err == nil && !bytes.Equal(EncodeFrame(m), raw) {
			t.Errorf("%x decodes to %+v", raw, m)
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add(golden()["reply"])
	f.Fuzz(func(t *testing.T, raw []byte) {
		if m, err := DecodeReply(raw); err == nil && !bytes.Equal(EncodeReply(m), raw) {
			t.Errorf("%x decodes to %+v", raw, m)
		}
	})
}

func FuzzOpen(f *testing.F) {
	f.Add(golden()["envelope"])
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := Open(raw)
		if err == nil && !bytes.Equal(append(Unsigned(e.Kind, e.From, e.Body), e.Sig...), raw) {
			t.Errorf("%x opens to %+v", raw, e)
		}
	})
}

// FuzzCheck compares the length walk with the library: what Check lets through the library skips without an error, to the end.
func FuzzCheck(f *testing.F) {
	for _, name := range names() {
		f.Add(golden()[name][1:])
	}
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if Check(raw) != nil {
			return
		}
		r := bytes.NewReader(raw)
		if err := msgpack.NewDecoder(r).Skip(); err != nil || r.Len() != 0 {
			t.Errorf("%x passes; the library says %v with %d bytes left", raw, err, r.Len())
		}
	})
}
