package tape

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"quire/kvtransfer"
	"quire/kvtransfer/wire"
)

// PartVersion is the version of parts. A newer one is refused.
const PartVersion = 1

// MaxPart is the most bytes that a part may have.
const MaxPart = wire.MaxMessage

// Part is one thing that decode had of one attempt: exactly one of Head, Frame, Manifest and End is set. An attempt's parts are
// numbered from 0 in the order in which they came, so that one which is missing shows.
type Part struct {
	Key    kvtransfer.Key
	Tenant string
	Number uint32
	At     kvtransfer.Tick // of decode's clock

	Head     *Head
	Frame    []byte // as sent: length, header, ciphertext and tag
	Manifest *Manifest
	End      *End
}

// Head is what binds the attempt's frames, the key that opens them, and what is asked of decode. It is part 0.
type Head struct {
	Model       string              `json:"model"`       // full name
	Reservation []byte              `json:"reservation"` // the body that decode signed: its hash binds every frame
	Claim       []byte              `json:"claim"`       // the body of the claim that bound the attempt
	Prefill     kvtransfer.Peer     `json:"prefill"`     // who claimed
	FrameKey    []byte              `json:"frame_key"`   // 32 bytes
	Shape       kvtransfer.CutShape `json:"shape"`
	Prompt      int                 `json:"prompt"`   // how many of Tokens are the prompt
	Tokens      []int32             `json:"tokens"`   // prompt, and the output of earlier attempts
	Sampling    kvtransfer.Sampling `json:"sampling"` // with the seed that was used
	LeaseStart  kvtransfer.Tick     `json:"lease_start"`
	Deadline    kvtransfer.Tick     `json:"deadline"`
}

// Manifest is prefill's statement, and who signed it.
type Manifest struct {
	From kvtransfer.Peer `json:"from"`
	Body []byte          `json:"body"`
}

// End is how it went: what the gate said, what left, why it ended.
type End struct {
	Judged bool              `json:"judged"` // the gate was asked
	OK     bool              `json:"ok"`
	Check  string            `json:"check,omitempty"` // that failed
	Finish kvtransfer.Finish `json:"finish,omitempty"`
	Error  kvtransfer.Error  `json:"error"`
	Output []int32           `json:"output"`
	// Choices tell, for each output token, from which logits it was chosen; fewer where some are not known.
	Choices []Choice `json:"choices,omitempty"`
}

// Choice is what a token was chosen from.
type Choice struct {
	Sum  uint64 `json:"sum"`  // the first 8 bytes of the SHA-256 of the logits as the model gave them, [Vocab] f32
	Bits uint32 `json:"bits"` // of the chosen token's logit, IEEE 754
}

// The kinds of part, as they stand in its first byte once opened.
const (
	kindHead byte = iota + 1
	kindFrame
	kindManifest
	kindEnd
)

const partHead = 1 + 8 // bytes before a part's content: kind, tick

func (p Part) bound() []byte {
	return fmt.Appendf(nil, "quire tape part %d\x00%s\x00%x\x00%d\x00%d", PartVersion, p.Tenant, p.Key.ID[:], p.Key.Attempt, p.Number)
}

// Seal gives the bytes of a part: its version, then nonce and sealed kind, tick and content.
func (p Part) Seal(k Key) ([]byte, error) {
	kind, content, err := p.content()
	if err != nil {
		return nil, fmt.Errorf("tape: part %d of %s: %w", p.Number, p.Key, err)
	}
	if len(content) > MaxPart {
		return nil, fmt.Errorf("tape: part %d of %s: %d bytes, limit %d", p.Number, p.Key, len(content), MaxPart)
	}
	plain := make([]byte, 0, partHead+len(content))
	plain = append(plain, kind)
	plain = binary.LittleEndian.AppendUint64(plain, uint64(p.At))
	plain = append(plain, content...)
	g, err := k.aead()
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	return g.Seal([]byte{PartVersion}, nil, plain, p.bound()), nil
}

func (p Part) content() (kind byte, b []byte, err error) {
	switch {
	case p.Head != nil:
		b, err = json.Marshal(p.Head)
		return kindHead, b, err
	case p.Frame != nil:
		return kindFrame, p.Frame, nil
	case p.Manifest != nil:
		b, err = json.Marshal(p.Manifest)
		return kindManifest, b, err
	case p.End != nil:
		b, err = json.Marshal(p.End)
		return kindEnd, b, err
	}
	return 0, nil, fmt.Errorf("nothing in it")
}

// size is about what a part holds of memory while it waits, in bytes.
func (p Part) size() int {
	n := 1024 + len(p.Frame)
	if p.Head != nil {
		n += 8*len(p.Head.Tokens) + len(p.Head.Reservation)
	}
	if p.End != nil {
		n += 32 * len(p.End.Output)
	}
	return n
}

// OpenPart reads a part of a tenant's attempt, as its subject names them.
func OpenPart(k Key, tenant string, key kvtransfer.Key, number uint32, b []byte) (Part, error) {
	p := Part{Key: key, Tenant: tenant, Number: number}
	switch {
	case len(b) < 1 || len(b) > MaxPart+64:
		return p, fmt.Errorf("tape: part of %d bytes, limit %d", len(b), MaxPart+64)
	case b[0] != PartVersion:
		return p, fmt.Errorf("tape: part of version %d, known %d", b[0], PartVersion)
	}
	g, err := k.aead()
	if err != nil {
		return p, fmt.Errorf("tape: %w", err)
	}
	plain, err := g.Open(nil, nil, b[1:], p.bound())
	if err != nil {
		return p, fmt.Errorf("tape: part %d of %s: %w", number, key, ErrKey)
	}
	if len(plain) < partHead {
		return p, fmt.Errorf("tape: part %d of %s: %d bytes", number, key, len(plain))
	}
	p.At = kvtransfer.Tick(binary.LittleEndian.Uint64(plain[1:]))
	content := plain[partHead:]
	switch plain[0] {
	case kindHead:
		p.Head, err = read[Head](content)
	case kindFrame:
		p.Frame = content
	case kindManifest:
		p.Manifest, err = read[Manifest](content)
	case kindEnd:
		p.End, err = read[End](content)
	default:
		err = fmt.Errorf("kind %d", plain[0])
	}
	if err != nil {
		return p, fmt.Errorf("tape: part %d of %s: %w", number, key, err)
	}
	return p, nil
}

func read[T any](b []byte) (*T, error) {
	v := new(T)
	return v, json.Unmarshal(b, v)
}
