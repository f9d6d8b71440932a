package journal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
)

// What Check finds, for errors.Is. The errors carry the numbers.
var (
	ErrGap       = errors.New("records are missing")
	ErrEdited    = errors.New("the record before is not the one that was written")
	ErrRepeated  = errors.New("another record of a number that was there")
	ErrTwice     = errors.New("the same record again") // harmless: a publish was repeated after the dedupe window
	ErrSignature = errors.New("signature does not verify")
)

// Chain is where one life of one service stands in its records. The zero position is before its first record.
type Chain struct {
	Service string // <role>-<id>
	Epoch   uint64
	Counter uint64 // of the last record; 0 before the first
	Last    Hash   // of the last record's bytes; zero before the first

	// Set by a Checker alone.
	First   uint64 // the first record that was seen
	Signed  uint64 // the last one with a good signature: it vouches for all before it; 0 = none
	Stopped bool   // the last one says that the life ended in order
}

// NewChain starts the chain of one life of one process.
func NewChain(p kvtransfer.Peer) Chain {
	return Chain{Service: string(p.Role) + "-" + p.ID, Epoch: p.Epoch}
}

// Next numbers and links a record. It gives the bytes to publish and the chain's position after them.
func (c Chain) Next(r Record) ([]byte, Chain, error) {
	r.Schema, r.Service, r.Epoch, r.Counter, r.Prev = Schema, c.Service, c.Epoch, c.Counter+1, c.Last
	b, err := r.Encode()
	if err != nil {
		return nil, c, err
	}
	c.Counter++
	c.Last = HashOf(b)
	return b, c, nil
}

// signDomain stands before a record when it is signed. Its first byte is no text, so no login nonce can look like a record.
const signDomain = "\xffquire journal 1\x00"

// Sign gives the signature of a record's bytes by its service's role.
func Sign(s seal.Signer, b []byte) []byte { return s.Sign(append([]byte(signDomain), b...)) }

// Checker reads chains and says where one is broken. The zero value is ready; it checks signatures if Keys is set.
type Checker struct {
	Keys    seal.Verifier
	Partial bool // a chain may begin with any record: the stream's first records are gone by retention
	chains  map[life]Chain
}

type life struct {
	service string
	epoch   uint64
}

// Parsed is one record that was read and whose signature was looked at, and nothing else: see Parse.
type Parsed struct {
	Record Record
	hash   Hash
	signed bool  // it has a good signature
	err    error // it is no record
	badSig error
}

// Parse does what can be done with a record alone, whatever was before it: it may run for many records at once. keys may be nil.
func Parse(b, sig []byte, keys seal.Verifier) Parsed {
	r, err := Decode(b)
	if err != nil {
		return Parsed{err: err}
	}
	p := Parsed{Record: r, hash: HashOf(b)}
	p.signed, p.badSig = vouch(r, b, sig, keys)
	return p
}

// Check takes the next record of a stream, in the stream's order, with its signature (nil when it has none). An error says
// what is wrong: ErrGap, ErrEdited, ErrRepeated, ErrTwice, ErrSignature, or that it is no record at all. With Keys, a
// signature that is there must verify, and records of the kinds that are signed must have one. The chain goes on from this
// record all the same, unless it is a repetition, nothing that can be read, or signed by nobody.
func (c *Checker) Check(b, sig []byte) (Record, error) { return c.Next(Parse(b, sig, c.Keys)) }

// Next is Check for a record that was parsed, with the same keys.
func (c *Checker) Next(p Parsed) (Record, error) {
	if p.err != nil {
		return Record{}, p.err
	}
	if c.chains == nil {
		c.chains = map[life]Chain{}
	}
	r := p.Record
	if p.badSig != nil {
		return r, p.badSig
	}
	at := life{r.Service, r.Epoch}
	last, known := c.chains[at]
	if known && r.Counter == last.Counter && p.hash == last.Last {
		return r, fmt.Errorf("journal: %s epoch %d record %d: %w", r.Service, r.Epoch, r.Counter, ErrTwice)
	}
	if r.Counter == 0 || r.Counter <= last.Counter {
		return r, fmt.Errorf("journal: %s epoch %d: %w: record %d after %d", r.Service, r.Epoch, ErrRepeated, r.Counter, last.Counter)
	}
	next := Chain{Service: r.Service, Epoch: r.Epoch, Counter: r.Counter, Last: p.hash,
		First: last.First, Signed: last.Signed, Stopped: r.Kind == KindStopped}
	if !known {
		next.First = r.Counter
	}
	if p.signed {
		next.Signed = r.Counter
	}
	c.chains[at] = next
	switch {
	case !known && c.Partial:
		return r, nil
	case r.Counter != last.Counter+1:
		return r, fmt.Errorf("journal: %s epoch %d: %w: record %d after %d", r.Service, r.Epoch, ErrGap, r.Counter, last.Counter)
	case r.Prev != last.Last:
		return r, fmt.Errorf("journal: %s epoch %d record %d: %w: hash of record %d is %s, recorded %s",
			r.Service, r.Epoch, r.Counter, ErrEdited, last.Counter, last.Last, r.Prev)
	case last.Stopped:
		return r, fmt.Errorf("journal: %s epoch %d: %w: record %d after the end", r.Service, r.Epoch, ErrRepeated, r.Counter)
	}
	return r, nil
}

// vouch checks a record's signature; true means that it has a good one.
func vouch(r Record, b, sig []byte, keys seal.Verifier) (bool, error) {
	if keys == nil {
		return false, nil
	}
	if len(sig) == 0 && r.Schema > 1 && !Signs(r.Kind) {
		return false, nil
	}
	role, _, _ := strings.Cut(r.Service, "-")
	if !keys.Verify(kvtransfer.Role(role), append([]byte(signDomain), b...), sig) {
		return false, fmt.Errorf("journal: %s epoch %d record %d: %w", r.Service, r.Epoch, r.Counter, ErrSignature)
	}
	return true, nil
}

// Position is where a chain stands, for the end of a report; ok is false if no record of it was seen.
func (c *Checker) Position(service string, epoch uint64) (ch Chain, ok bool) {
	ch, ok = c.chains[life{service, epoch}]
	return ch, ok
}

// Positions are the chains seen, in order of service and epoch.
func (c *Checker) Positions() []Chain {
	return slices.SortedFunc(maps.Values(c.chains), func(a, b Chain) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Epoch, b.Epoch))
	})
}

// Spurious says that a record that Check complained of adds nothing to what is known: it was there already, is a second one
// of its number, or nobody signed it.
func Spurious(err error) bool {
	return errors.Is(err, ErrTwice) || errors.Is(err, ErrRepeated) || errors.Is(err, ErrSignature)
}
