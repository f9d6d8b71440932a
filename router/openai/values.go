package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"quire/kvtransfer"
)

// kindOf names the type of a JSON value for messages.
func kindOf(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

func asString(param string, raw json.RawMessage) (string, *kvtransfer.Error) {
	var s string
	if kindOf(raw) != "a string" || json.Unmarshal(raw, &s) != nil {
		return "", fault(param, "want a string, got %s", kindOf(raw))
	}
	return s, nil
}

func asBool(param string, raw json.RawMessage) (bool, *kvtransfer.Error) {
	switch string(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fault(param, "want true or false, got %s", kindOf(raw))
}

// asInt takes whole numbers in [lo, hi]; 5.0 and 5e0 are whole, "5" is a string.
func asInt(param string, raw json.RawMessage, lo, hi int64) (int64, *kvtransfer.Error) {
	if kindOf(raw) != "a number" {
		return 0, fault(param, "want a whole number, got %s", kindOf(raw))
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(string(raw), 64)
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
			return 0, fault(param, "want a whole number from %d to %d", lo, hi)
		}
		n = int64(f)
	}
	if n < lo || n > hi {
		return 0, fault(param, "%d is outside %d to %d", n, lo, hi)
	}
	return n, nil
}

// span is a range of numbers; lo itself is outside it when open.
type span struct {
	lo, hi float64
	open   bool
}

func asFloat(param string, raw json.RawMessage, s span) (float32, *kvtransfer.Error) {
	if kindOf(raw) != "a number" {
		return 0, fault(param, "want a number, got %s", kindOf(raw))
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f < s.lo || f > s.hi || (s.open && f == s.lo) {
		if s.open {
			return 0, fault(param, "want a number above %g and up to %g", s.lo, s.hi)
		}
		return 0, fault(param, "want a number from %g to %g", s.lo, s.hi)
	}
	v := float32(f)
	if s.open && float64(v) <= s.lo { // a number that is too small for float32 must not turn into "off"
		v = math.SmallestNonzeroFloat32
	}
	return v, nil
}

// asList splits an array of at most limit values.
func asList(param string, raw json.RawMessage, limit int) ([]json.RawMessage, *kvtransfer.Error) {
	var list []json.RawMessage
	if kindOf(raw) != "an array" || json.Unmarshal(raw, &list) != nil {
		return nil, fault(param, "want an array, got %s", kindOf(raw))
	}
	if len(list) > limit {
		return nil, fault(param, "%d entries, at most %d are taken", len(list), limit)
	}
	return list, nil
}

// asTokens reads token ids in [0, vocab).
func asTokens(param string, list []json.RawMessage, vocab int) ([]int32, *kvtransfer.Error) {
	ids := make([]int32, len(list))
	for i, raw := range list {
		if kindOf(raw) != "a number" {
			return nil, fault(param, "entry %d: want a token id, got %s", i, kindOf(raw))
		}
		n, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil || n < 0 || n >= int64(vocab) {
			return nil, fault(param, "entry %d is no token id: they go from 0 to %d", i, vocab-1)
		}
		ids[i] = int32(n)
	}
	return ids, nil
}

// neutral says whether a value means the same as leaving the field out.
func neutral(raw json.RawMessage, values []string) bool {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return false
	}
	for _, v := range values {
		if b.String() == v {
			return true
		}
	}
	return false
}
