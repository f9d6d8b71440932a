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

	"quire/journal"
)

// A bundle is a journal as one file: gzip over lines of JSON. The first line says what it is, then comes one line for each
// message of the stream, then one that counts them and has the SHA-256 of all lines before it.
const (
	bundleFormat  = "quire journal bundle"
	bundleVersion = 1

	maxLine    = 2*journal.MaxRecord + 4096 // bytes
	maxRecords = 1 << 28
	maxText    = 256 << 30 // bytes of all lines
)

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
}

type bundleTail struct {
	End      bool   `json:"end"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Messages uint64 `json:"messages"`
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

// Export writes every message of a source into a new file, and gives how many.
func Export(ctx context.Context, src Source, path string) (n uint64, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("replay: export: %w", err)
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
	if err := w.Encode(bundleHead{bundleFormat, bundleVersion, streamName(src)}); err != nil {
		return 0, err
	}
	ext, err := src.Items(ctx, func(it Item) error {
		n++
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
	tail := bundleTail{End: true, First: ext.First, Last: ext.Last, Messages: n, Sum: hex.EncodeToString(sum.Sum(nil))}
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
	f, err := os.Open(b.Path)
	if err != nil {
		return Extent{}, fmt.Errorf("replay: bundle: %w", err)
	}
	defer f.Close()
	ext, err := readBundle(ctx, f, fn)
	if err != nil {
		return ext, fmt.Errorf("replay: bundle %s: %w", b.Path, err)
	}
	return ext, nil
}

// bundleReader reads lines and sums them up.
type bundleReader struct {
	in    *bufio.Reader
	sum   hash.Hash
	bytes int64
}

func readBundle(ctx context.Context, f io.Reader, fn func(Item) error) (Extent, error) {
	z, err := gzip.NewReader(f)
	if err != nil {
		return Extent{}, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	r := &bundleReader{in: bufio.NewReaderSize(z, 64<<10), sum: sha256.New()}
	line, err := r.line()
	if err != nil {
		return Extent{}, fmt.Errorf("%w: %w", ErrBundle, err)
	}
	var head bundleHead
	if err := strict(line, &head); err != nil || head.Format != bundleFormat || head.Version != bundleVersion {
		return Extent{}, fmt.Errorf("%w: format %.40q version %d, known %q version %d", ErrBundle, head.Format, head.Version, bundleFormat, bundleVersion)
	}
	r.sum.Write(line)
	ext := Extent{Name: head.Stream}
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
			if tail.Messages != ext.Messages || tail.Sum != hex.EncodeToString(r.sum.Sum(nil)) {
				return ext, fmt.Errorf("%w: %d messages, %d stated", ErrCut, ext.Messages, tail.Messages)
			}
			if _, err := r.in.ReadByte(); err != io.EOF {
				return ext, fmt.Errorf("%w: something follows its end", ErrCut)
			}
			ext.First, ext.Last = tail.First, tail.Last
			return ext, nil
		}
		it, err := bundleItem(line)
		if err == nil && it.Sequence <= last {
			err = fmt.Errorf("sequence %d after %d", it.Sequence, last)
		}
		if ext.Messages++; err == nil && ext.Messages > maxRecords {
			err = fmt.Errorf("more than %d messages", maxRecords)
		}
		if err != nil {
			return ext, fmt.Errorf("%w: message %d: %w", ErrBundle, ext.Messages, err)
		}
		last = it.Sequence
		r.sum.Write(line)
		if err := fn(it); err != nil {
			return ext, err
		}
	}
}

func bundleItem(line []byte) (Item, error) {
	var l bundleLine
	if err := strict(line, &l); err != nil {
		return Item{}, err
	}
	if l.Data != nil && l.Text != nil {
		return Item{}, errors.New("both data and text")
	}
	it := Item{Sequence: l.Sequence, Time: l.Time, Subject: l.Subject, Data: l.Data}
	if l.Text != nil {
		it.Data = l.Text
	}
	var err error
	if l.Signature != "" {
		it.Signature, err = hex.DecodeString(l.Signature)
	}
	return it, err
}

// line is the next line with its end, within the limits.
func (r *bundleReader) line() ([]byte, error) {
	var out []byte
	for {
		part, err := r.in.ReadSlice('\n')
		out = append(out, part...)
		r.bytes += int64(len(part))
		if len(out) > maxLine || r.bytes > maxText {
			return nil, fmt.Errorf("line %d bytes, limit %d; all %d, limit %d", len(out), maxLine, r.bytes, int64(maxText))
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
