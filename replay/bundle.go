package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"quire/bus"
	"quire/journal"
)

// A bundle is a journal as one file: gzip over lines of JSON. The first line says what it is, then comes one line for each
// message of the stream, then, in version 2, one for each message of the tape, sealed as it is, then one that counts them and has
// the SHA-256 of all lines before it. A bundle without a tape is written as version 1.
const (
	bundleFormat  = "quire journal bundle"
	bundleVersion = 2
)

// bundleLimits bound what a bundle can make of its reader.
type bundleLimits struct {
	line     int    // bytes
	text     int64  // bytes of all lines
	messages uint64 // of journal and tape
}

var defaultLimits = bundleLimits{line: 2*journal.MaxRecord + 4096, text: 256 << 30, messages: 1 << 28}

// Errors of bundles, for errors.Is.
var (
	ErrBundle = errors.New("not a bundle of this version")
	ErrCut    = errors.New("the bundle is cut or changed")
)

type bundleHead struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Stream  string `json:"stream"`
}

type bundleLine struct {
	Sequence  uint64          `json:"seq"`
	Time      time.Time       `json:"time"`
	Subject   string          `json:"subject"`
	Signature string          `json:"sig,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"` // one record, byte for byte
	Text      []byte          `json:"text,omitempty"` // base64, where it is more than one, or none
	Tape      bool            `json:"tape,omitempty"` // a message of the tape
}

type bundleTail struct {
	End      bool   `json:"end"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Messages uint64 `json:"messages"`
	Taped    uint64 `json:"taped,omitempty"` // messages of the tape
	Sum      string `json:"sha256"`
}

// Bundle is a bundle in a file.
type Bundle struct{ Path string }

// IsBundle says whether a file begins like one: gzip.
func IsBundle(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [2]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && magic == [2]byte{0x1f, 0x8b}
}

// Exported is how many messages a bundle got.
type Exported struct {
	Messages uint64 `json:"messages"`
	Taped    uint64 `json:"taped"`
}

// Export writes every message of a journal, and of a tape unless it is nil, into a new file. What of the tape cannot be opened
// where it is cannot be opened in the bundle either.
func Export(ctx context.Context, src, taped Source, path string) (n Exported, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return n, fmt.Errorf("replay: export: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(path)
		}
	}()
	z := gzip.NewWriter(f)
	sum := sha256.New()
	w := json.NewEncoder(io.MultiWriter(z, sum))
	w.SetEscapeHTML(false)
	head := bundleHead{bundleFormat, bundleVersion, streamName(src)}
	if taped == nil {
		head.Version = 1
	}
	if err := w.Encode(head); err != nil {
		return n, err
	}
	ext, err := src.Items(ctx, func(it Item) error {
		n.Messages++
		line := bundleLine{Sequence: it.Sequence, Time: it.Time, Subject: it.Subject, Signature: hex.EncodeToString(it.Signature)}
		if compact(it.Data) {
			line.Data = it.Data
		} else {
			line.Text = it.Data
		}
		return w.Encode(line)
	})
	if err != nil {
		return n, err
	}
	if taped != nil {
		if _, err := taped.Items(ctx, func(it Item) error {
			n.Taped++
			return w.Encode(bundleLine{Sequence: it.Sequence, Time: it.Time, Subject: it.Subject, Text: it.Data, Tape: true})
		}); err != nil {
			return n, err
		}
	}
	tail := bundleTail{End: true, First: ext.First, Last: ext.Last, Messages: n.Messages, Taped: n.Taped, Sum: hex.EncodeToString(sum.Sum(nil))}
	if err := json.NewEncoder(z).Encode(tail); err != nil {
		return n, err
	}
	return n, z.Close()
}

func streamName(src Source) string {
	if s, ok := src.(Stream); ok {
		return s.Name
	}
	return ""
}

// compact says that an encoder writes these bytes as they are.
func compact(b []byte) bool {
	var c bytes.Buffer
	return json.Compact(&c, b) == nil && bytes.Equal(c.Bytes(), b) && !bytes.ContainsAny(b, "\u2028\u2029")
}

// Items implements Source.
func (b Bundle) Items(ctx context.Context, fn func(Item) error) (Extent, error) {
	return b.read(ctx, func(it Item, taped bool) error {
		if taped {
			return nil
		}
		return fn(it)
	})
}

// Tape implements tape.Messages.
func (b Bundle) Tape(ctx context.Context, pattern string, fn func(subject string, data []byte) error) error {
	_, err := b.read(ctx, func(it Item, taped bool) error {
		if !taped || !bus.Matches(pattern, it.Subject) {
			return nil
		}
		return fn(it.Subject, it.Data)
	})
	return err
}

// Taped is what a bundle has of the tape, as a source for another bundle.
type Taped struct{ Bundle }

// Items implements Source.
func (t Taped) Items(ctx context.Context, fn func(Item) error) (Extent, error) {
	return t.read(ctx, func(it Item, taped bool) error {
		if !taped {
			return nil
		}
		return fn(it)
	})
}

func (b Bundle) read(ctx context.Context, fn func(it Item, taped bool) error) (Extent, error) {
	f, err := os.Open(b.Path)
	if err != nil {
		return Extent{}, fmt.Errorf("replay: bundle: %w", err)
	}
	defer f.Close()
	ext, err := readBundle(ctx, f, defaultLimits, fn)
	if err != nil {
		return ext, fmt.Errorf("replay: bundle %s: %w", b.Path, err)
	}
	return ext, nil
}

// bundleReader reads lines and sums them up.
type bundleReader struct {
	in     *bufio.Reader
	sum    hash.Hash
	limits bundleLimits
	bytes  int64
}

func readBundle(ctx context.Context, f io.Reader, limits bundleLimits, fn func(it Item, taped bool) error) (Extent, error) {
	z, err := gzip.NewReader(f)
	if err != nil {
		return Extent{}, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	r := &bundleReader{in: bufio.NewReaderSize(z, 64<<10), sum: sha256.New(), limits: limits}
	line, err := r.line()
	if err != nil {
		return Extent{}, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	var head bundleHead
	if err := strict(line, &head); err != nil || head.Format != bundleFormat || head.Version < 1 || head.Version > bundleVersion {
		return Extent{}, fmt.Errorf("%w: format %.40q version %d, known %q version 1 to %d", ErrBundle, head.Format, head.Version, bundleFormat, bundleVersion)
	}
	r.sum.Write(line)
	return r.messages(ctx, head, fn)
}

// messages reads all lines behind the first.
func (r *bundleReader) messages(ctx context.Context, head bundleHead, fn func(it Item, taped bool) error) (Extent, error) {
	ext, taped := Extent{Name: head.Stream}, uint64(0)
	for last := uint64(0); ; {
		if err := ctx.Err(); err != nil {
			return ext, err
		}
		line, err := r.line()
		if err != nil {
			return ext, fmt.Errorf("%w: after %d messages: %w", ErrCut, ext.Messages, err)
		}
		var tail bundleTail
		if bytes.HasPrefix(line, []byte(`{"end":`)) && strict(line, &tail) == nil {
			if tail.Messages != ext.Messages || tail.Taped != taped || tail.Sum != hex.EncodeToString(r.sum.Sum(nil)) {
				return ext, fmt.Errorf("%w: %d messages, %d stated", ErrCut, ext.Messages, tail.Messages)
			}
			if _, err := r.in.ReadByte(); err != io.EOF {
				return ext, fmt.Errorf("%w: something follows its end", ErrCut)
			}
			ext.First, ext.Last = tail.First, tail.Last
			return ext, nil
		}
		it, ofTape, err := bundleItem(line)
		switch {
		case ofTape && head.Version < 2 || !ofTape && taped > 0:
			err = fmt.Errorf("a message of the tape where none belongs, version %d", head.Version)
		case ofTape && taped == 0:
			last = 0
		}
		if err == nil && it.Sequence <= last {
			err = fmt.Errorf("sequence %d after %d", it.Sequence, last)
		}
		if ofTape {
			taped++
		} else {
			ext.Messages++
		}
		if err == nil && ext.Messages+taped > r.limits.messages {
			err = fmt.Errorf("more than %d messages", r.limits.messages)
		}
		if err != nil {
			return ext, fmt.Errorf("%w: message %d: %w", ErrBundle, ext.Messages+taped, err)
		}
		last = it.Sequence
		r.sum.Write(line)
		if err := fn(it, ofTape); err != nil {
			return ext, err
		}
	}
}

func bundleItem(line []byte) (it Item, taped bool, err error) {
	var l bundleLine
	if err := strict(line, &l); err != nil {
		return Item{}, false, err
	}
	if l.Data != nil && l.Text != nil {
		return Item{}, false, errors.New("both data and text")
	}
	it = Item{Sequence: l.Sequence, Time: l.Time, Subject: l.Subject, Data: l.Data}
	if l.Text != nil {
		it.Data = l.Text
	}
	if l.Signature != "" {
		it.Signature, err = hex.DecodeString(l.Signature)
	}
	return it, l.Tape, err
}

// line is the next line with its end, within the limits.
func (r *bundleReader) line() ([]byte, error) {
	var out []byte
	for {
		part, err := r.in.ReadSlice('\n')
		out = append(out, part...)
		r.bytes += int64(len(part))
		if len(out) > r.limits.line || r.bytes > r.limits.text {
			return nil, fmt.Errorf("line %d bytes, limit %d; all %d, limit %d", len(out), r.limits.line, r.bytes, r.limits.text)
		}
		if err == nil {
			return out, nil
		}
		if err != bufio.ErrBufferFull {
			return nil, err
		}
	}
}

// strict decodes JSON without unknown fields.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}
