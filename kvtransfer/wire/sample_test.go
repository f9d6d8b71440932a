package wire

import (
	"fmt"
	"reflect"

	"pgregory.net/rapid"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// source gives the numbers of which sample builds messages: a counter for golden files, rapid for properties.
type source interface {
	// upto gives a number in [0, n).
	upto(n int) int
}

type counting struct{ at int }

func (c *counting) upto(n int) int { c.at++; return c.at % n }

type drawing struct{ t *rapid.T }

func (d drawing) upto(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "n") }

// fill sets every field of a message, however deep, to something within its limits. So a field that the codec forgets is seen.
func fill(s source, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(s, v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(s.upto(256)))
		}
	case reflect.Slice:
		n := s.upto(4)
		if n == 0 {
			v.SetZero()
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(s, v.Index(i))
		}
	case reflect.Pointer:
		if s.upto(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(s, v.Elem())
		}
	case reflect.String:
		v.SetString("abc-0123456789xyz"[:s.upto(18)])
	case reflect.Bool:
		v.SetBool(s.upto(2) == 1)
	case reflect.Float32:
		v.SetFloat(float64(s.upto(4001)-2000) / 16)
	case reflect.Int:
		v.SetInt(int64(s.upto(21))) // within the narrowest limit, that of logprobs
	case reflect.Int32:
		v.SetInt(int64(s.upto(1 << 31)))
	case reflect.Int64:
		v.SetInt(int64(s.upto(1<<40) - 1<<20))
	case reflect.Uint8:
		if v.Type() == reflect.TypeFor[page.State]() {
			v.SetUint(uint64(s.upto(int(page.Quarantined) + 1)))
			return
		}
		v.SetUint(uint64(s.upto(256)))
	case reflect.Uint32:
		v.SetUint(uint64(s.upto(1 << 32)))
	case reflect.Uint64:
		v.SetUint(uint64(s.upto(1<<62)) * 3)
	default:
		panic(fmt.Sprintf("sample of %s", v.Type()))
	}
}

func sample[T any](s source) T {
	var m T
	fill(s, reflect.ValueOf(&m).Elem())
	return m
}

// body is one message type with its encoder and decoder, whatever the type.
type body struct {
	name   string
	sample func(source) any
	decode func([]byte) (any, error)
}

func bodyOf[T any](name string) body {
	return body{
		name:   name,
		sample: func(s source) any { return sample[T](s) },
		decode: func(b []byte) (any, error) { return Decode[T](b) },
	}
}

// bodies are all messages that travel as a body. The order is that of FuzzBody's first argument.
var bodies = []body{
	bodyOf[kvtransfer.Reserve]("reserve"),
	bodyOf[kvtransfer.Reservation]("reservation"),
	bodyOf[kvtransfer.Refused]("refused"),
	bodyOf[kvtransfer.Job]("job"),
	bodyOf[kvtransfer.Claim]("claim"),
	bodyOf[kvtransfer.Claimed]("claimed"),
	bodyOf[kvtransfer.Gone]("gone"),
	bodyOf[kvtransfer.Progress]("progress"),
	bodyOf[kvtransfer.Abort]("abort"),
	bodyOf[kvtransfer.Cancel]("cancel"),
	bodyOf[kvtransfer.Manifest]("manifest"),
	bodyOf[kvtransfer.ReplyBody]("reply body"),
	bodyOf[kvtransfer.Resend]("resend"),
	bodyOf[kvtransfer.Resent]("resent"),
	bodyOf[kvtransfer.Heartbeat]("heartbeat"),
	bodyOf[kvtransfer.PagesAsk]("pages ask"),
	bodyOf[kvtransfer.Pages]("pages"),
}

// sealedFrame, sealedReply and envelope are the messages around bodies.
func sealedFrame(s source) kvtransfer.Frame {
	f := sample[kvtransfer.Frame](s)
	f.Sealed = append(f.Sealed, make([]byte, TagSize)...)
	return f
}

func sealedReply(s source) kvtransfer.Reply {
	r := sample[kvtransfer.Reply](s)
	r.Sealed = append(r.Sealed, make([]byte, TagSize)...)
	return r
}

func envelope(s source) []byte {
	from := sample[kvtransfer.Peer](s)
	kind := kvtransfer.Kind(1 + s.upto(int(kvtransfer.KindHeartbeat)))
	for len(senders[kind]) == 0 {
		kind = 1 + kind%kvtransfer.KindHeartbeat
	}
	from.Role = senders[kind][s.upto(len(senders[kind]))]
	b := Unsigned(kind, from, sample[[]byte](s))
	for range SigSize {
		b = append(b, byte(s.upto(256)))
	}
	return b
}
