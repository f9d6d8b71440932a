package wire

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"quire/kvtransfer"
)

var update = flag.Bool("update", false, "write testdata anew")

// Every message comes back as it went in, from a value and from a pointer, and its bytes are those of its re-encoding.
func TestBodiesRoundTrip(t *testing.T) {
	for _, b := range bodies {
		t.Run(b.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := b.sample(drawing{t})
				raw, err := Encode(m)
				if err != nil {
					t.Fatal(err)
				}
				got, err := b.decode(raw)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(m, got); diff != "" {
					t.Fatal(diff)
				}
				p := reflect.New(reflect.TypeOf(m))
				p.Elem().Set(reflect.ValueOf(m))
				if again, err := Encode(p.Interface()); err != nil || !bytes.Equal(again, raw) {
					t.Fatalf("from a pointer: %x, %v", again, err)
				}
			})
		})
	}
}

func TestSealedRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := sealedFrame(drawing{t})
		if got, err := DecodeFrame(EncodeFrame(f)); err != nil || !cmp.Equal(got, f) {
			t.Fatalf("%+v, %v, want %+v", got, err, f)
		}
		r := sealedReply(drawing{t})
		if got, err := DecodeReply(EncodeReply(r)); err != nil || !cmp.Equal(got, r) {
			t.Fatalf("%+v, %v, want %+v", got, err, r)
		}
	})
}

func TestEnvelopeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := envelope(drawing{t})
		e, err := Open(b)
		if err != nil {
			t.Fatal(err)
		}
		again := append(Unsigned(e.Kind, e.From, e.Body), e.Sig...)
		if !bytes.Equal(again, b) || !bytes.Equal(e.Signed, b[:len(b)-SigSize]) {
			t.Fatalf("got %x, want %x", again, b)
		}
	})
}

// golden is one sample of everything, always the same.
func golden() map[string][]byte {
	out := map[string][]byte{}
	for _, b := range bodies {
		raw, err := Encode(b.sample(&counting{at: len(b.name)}))
		if err != nil {
			panic(err)
		}
		out[b.name] = raw
	}
	out["frame"] = EncodeFrame(sealedFrame(&counting{}))
	out["reply"] = EncodeReply(sealedReply(&counting{}))
	out["envelope"] = envelope(&counting{})
	return out
}

// names are golden's in order.
func names() []string {
	var n []string
	for _, b := range bodies {
		n = append(n, b.name)
	}
	return append(n, "frame", "reply", "envelope")
}

// TestBytesStayTheSame pins the bytes of version 1: whoever changes them makes a new version.
func TestBytesStayTheSame(t *testing.T) {
	const file = "testdata/version1.txt"
	var got strings.Builder
	for _, name := range names() {
		fmt.Fprintf(&got, "%s\n%s\n", name, hex.EncodeToString(golden()[name]))
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("bytes differ from %s:\n%s", file, diff)
	}
}

// Every kind either has senders or travels sealed.
func TestEveryKindHasSenders(t *testing.T) {
	for k := kvtransfer.KindReserve; k <= kvtransfer.KindPages; k++ {
		sealed := k == kvtransfer.KindFrame || k == kvtransfer.KindReply
		if sealed == (len(senders[k]) > 0) {
			t.Errorf("kind %d: sealed %t, senders %v", k, sealed, senders[k])
		}
	}
	if MaySend(kvtransfer.RolePrefill, kvtransfer.KindReservation) || MaySend(kvtransfer.RoleRouter, kvtransfer.KindManifest) {
		t.Error("prefill may promise pages, or a router a hand-off")
	}
}
