package journal

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"

	"quire/kvtransfer"
)

// Records as they are written here are read without encoding/json, which takes most of the time of an audit otherwise: no space,
// no escape, no field twice, no null, nothing but what the tables below know. Whatever is not of that form is left to
// encoding/json, which alone says what is wrong; what is read here it reads the same.

// table finds the fields of a struct by their names in JSON.
type table struct {
	typ    reflect.Type
	fields map[string]int
}

func tableOf(t reflect.Type) table {
	x := table{t, map[string]int{}}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		x.fields[name] = i
	}
	return x
}

var (
	formTable  = tableOf(reflect.TypeFor[form]())
	factsField = formTable.fields["facts"]
	factTables = map[Kind]table{}
)

func init() {
	for kind, read := range readers {
		v, err := read([]byte("{}"))
		if err != nil {
			panic("journal: " + err.Error()) // every fact can be read of an object without fields
		}
		factTables[kind] = tableOf(reflect.TypeOf(v))
	}
}

// scanner reads canonical JSON. Once something does not fit, bad is set and nothing more counts.
type scanner struct {
	b   []byte
	at  int
	bad bool
}

// fast reads a record; false: it is not of the form that is written here, and nothing is known.
func fast(b []byte) (Record, bool) {
	var f form
	var facts Facts
	s := &scanner{b: b}
	v := reflect.ValueOf(&f).Elem()
	for o := s.object(formTable); o.more(); {
		if o.field != factsField {
			s.value(v.Field(o.field).Addr().Interface())
			continue
		}
		t, known := factTables[f.Kind]
		if !known {
			return Record{}, false
		}
		facts = s.facts(t)
	}
	if s.bad || s.at != len(b) || facts == nil || f.Schema < 1 || f.Schema > Schema {
		return Record{}, false
	}
	return Record{Schema: f.Schema, Kind: f.Kind, Service: f.Service, Epoch: f.Epoch, Counter: f.Counter, Prev: f.Prev, At: kvtransfer.Tick(f.At),
		Key: kvtransfer.Key{ID: kvtransfer.HandoffID(f.Handoff), Attempt: f.Attempt}, Tenant: f.Tenant, Facts: facts}, true
}

func (s *scanner) facts(t table) Facts {
	v := reflect.New(t.typ).Elem()
	for o := s.object(t); o.more(); {
		s.value(v.Field(o.field).Addr().Interface())
	}
	if s.bad {
		return nil
	}
	f, _ := v.Interface().(Facts)
	return f
}

// object is an object that is being read. After more, field is the one whose value comes next.
type object struct {
	s     *scanner
	t     table
	seen  uint64 // bits of fields
	field int
}

func (s *scanner) object(t table) object {
	s.take('{')
	return object{s: s, t: t}
}

// more goes to the next field; a name that is not known, or comes twice, does not fit.
func (o *object) more() bool {
	s := o.s
	if s.next('}') {
		return false
	}
	if o.seen != 0 {
		s.take(',')
	}
	i, known := o.t.fields[string(s.raw())]
	if s.take(':'); s.bad || !known || i >= 64 || o.seen&(1<<i) != 0 {
		s.bad = true
		return false
	}
	o.seen |= 1 << i
	o.field = i
	return true
}

// value reads what one field holds.
func (s *scanner) value(to any) {
	switch p := to.(type) {
	case *int:
		*p = int(s.int(strconv.IntSize))
	case *int64:
		*p = s.int(64)
	case *uint32:
		*p = uint32(s.uint(32))
	case *uint64:
		*p = s.uint(64)
	case *bool:
		*p = s.bool()
	case *string:
		*p = s.text()
	case *Kind:
		*p = Kind(s.text())
	case *Hash:
		s.digits(p)
	case *ID:
		s.digits(p)
	case *Pages:
		*p = s.pages()
	case *Spans:
		*p = s.spans()
	default:
		s.bad = true
	}
}

func (s *scanner) take(c byte) {
	if !s.next(c) {
		s.bad = true
	}
}

// next takes a byte if it is the next one.
func (s *scanner) next(c byte) bool {
	if s.bad || s.at >= len(s.b) || s.b[s.at] != c {
		return false
	}
	s.at++
	return true
}

// raw is a string without escapes, of ASCII.
func (s *scanner) raw() []byte {
	s.take('"')
	from := s.at
	for !s.bad && s.at < len(s.b) {
		switch c := s.b[s.at]; {
		case c == '"':
			s.at++
			return s.b[from : s.at-1]
		case c < ' ' || c >= 0x7f || c == '\\':
			s.bad = true
		}
		s.at++
	}
	s.bad = true
	return nil
}

func (s *scanner) text() string { return string(s.raw()) }

func (s *scanner) digits(to interface{ UnmarshalText([]byte) error }) {
	if b := s.raw(); !s.bad && to.UnmarshalText(b) != nil {
		s.bad = true
	}
}

func (s *scanner) bool() bool {
	switch rest := s.b[s.at:]; {
	case bytes.HasPrefix(rest, []byte("true")):
		s.at += 4
		return true
	case bytes.HasPrefix(rest, []byte("false")):
		s.at += 5
		return false
	}
	s.bad = true
	return false
}

// uint is a number without sign, fraction and exponent, of so many bits.
func (s *scanner) uint(bits int) uint64 {
	from, v := s.at, uint64(0)
	for s.at < len(s.b) && s.b[s.at] >= '0' && s.b[s.at] <= '9' && s.at-from < 20 {
		d := uint64(s.b[s.at] - '0')
		if v > (1<<64-1-d)/10 {
			s.bad = true
		}
		v = 10*v + d
		s.at++
	}
	if s.at == from || s.b[from] == '0' && s.at > from+1 || s.at < len(s.b) && s.b[s.at] >= '0' && s.b[s.at] <= '9' || v>>(bits-1)>>1 != 0 {
		s.bad = true
	}
	return v
}

func (s *scanner) int(bits int) int64 {
	minus := s.next('-')
	v := s.uint(64)
	limit := uint64(1) << (bits - 1)
	switch {
	case minus && v <= limit:
		return -int64(v)
	case !minus && v < limit:
		return int64(v)
	}
	s.bad = true
	return 0
}

// element goes to the next element of an array whose [ is taken; n counts those before it.
func (s *scanner) element(n int) bool {
	if s.next(']') {
		return false
	}
	if n > 0 {
		s.take(',')
	}
	return !s.bad
}

func (s *scanner) pages() Pages {
	out := Pages{}
	s.take('[')
	for n := 0; s.element(n); n++ {
		var run [3]uint64
		k := 0
		s.take('[')
		for ; s.element(k); k++ {
			if k == len(run) {
				s.bad = true
				break
			}
			run[k] = s.uint(64)
		}
		if s.bad {
			break
		}
		var err error
		if out, err = out.add(run[:k]); err != nil {
			s.bad = true
		}
	}
	return out
}

func (s *scanner) spans() Spans {
	out := Spans{}
	s.take('[')
	for n := 0; s.element(n); n++ {
		var o Span
		s.take('[')
		o[0] = int(s.int(strconv.IntSize))
		s.take(',')
		o[1] = int(s.int(strconv.IntSize))
		s.take(']')
		out = append(out, o)
	}
	return out
}
