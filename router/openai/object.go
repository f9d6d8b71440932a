package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"quire/kvtransfer"
)

// member is one field of a JSON object, in the order of the body.
type member struct {
	name string
	raw  json.RawMessage
}

// isNull says that the value is null, which means the same as leaving the field out.
func (m member) isNull() bool { return bytes.Equal(m.raw, []byte("null")) }

// object splits a JSON object into its members. A field named twice, a body that is no object and anything behind it are
// refused: which of two values counts is not for a parser to choose.
func object(where string, body []byte) ([]member, *kvtransfer.Error) {
	if !utf8.Valid(body) {
		return nil, fault(where, "not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	first, err := dec.Token()
	if err != nil {
		return nil, malformed(where, body, err)
	}
	if first != json.Delim('{') {
		return nil, fault(where, "want a JSON object")
	}
	var members []member
	seen := make(map[string]bool)
	for dec.More() {
		m, e := next(where, body, dec)
		if e != nil {
			return nil, e
		}
		if seen[m.name] {
			return nil, fault(clip(m.name), "the field is there twice")
		}
		if len(members) == MaxTopFields {
			return nil, fault(where, "more than %d fields", MaxTopFields)
		}
		seen[m.name] = true
		members = append(members, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformed(where, body, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fault(where, "more bytes behind the JSON object, at %d", dec.InputOffset())
	}
	return members, nil
}

func next(where string, body []byte, dec *json.Decoder) (member, *kvtransfer.Error) {
	key, err := dec.Token()
	if err != nil {
		return member{}, malformed(where, body, err)
	}
	name, ok := key.(string)
	if !ok {
		return member{}, fault(where, "malformed JSON at byte %d", dec.InputOffset())
	}
	m := member{name: name}
	if err := dec.Decode(&m.raw); err != nil {
		return member{}, malformed(where, body, err)
	}
	return m, nil
}

// malformed says where the JSON broke, without quoting it: bodies hold prompts.
func malformed(where string, body []byte, err error) *kvtransfer.Error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fault(where, "malformed JSON at byte %d of %d", syntax.Offset, len(body))
	}
	return fault(where, "malformed JSON: the body ends early, after %d bytes", len(body))
}
