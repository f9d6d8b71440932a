package wire

import (
	"encoding/binary"
	"fmt"

	"quire/kvtransfer"
)

// EncodeFrame gives u32 header length | header | sealed bytes. A header that breaks a limit is refused by whoever decodes it.
func EncodeFrame(f kvtransfer.Frame) []byte {
	return append(StartFrame(make([]byte, 0, 4+MaxHeader+len(f.Sealed)), f.Header), f.Sealed...)
}

// StartFrame appends the beginning of an encoded frame to dst, u32 header length | header: for a frame whose bytes are put and
// sealed where they will be sent from.
func StartFrame(dst []byte, h kvtransfer.FrameHeader) []byte {
	head, _ := write("frame", func(c *codec) { frameHeader(c, &h) })
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(head))), head...)
}

// DecodeFrame splits a frame. Sealed shares b's memory and has at least a tag's length.
func DecodeFrame(b []byte) (kvtransfer.Frame, error) {
	var f kvtransfer.Frame
	sealed, err := split("frame", b, func(c *codec) { frameHeader(c, &f.Header) })
	if err != nil {
		return kvtransfer.Frame{}, err
	}
	f.Sealed = sealed
	return f, nil
}

// EncodeReply gives u32 header length | header | sealed bytes.
func EncodeReply(r kvtransfer.Reply) []byte {
	head, _ := write("reply", func(c *codec) { replyHeader(c, &r.Header) })
	return join(head, r.Sealed)
}

// DecodeReply splits a reply. Sealed shares b's memory and has at least a tag's length.
func DecodeReply(b []byte) (kvtransfer.Reply, error) {
	var r kvtransfer.Reply
	sealed, err := split("reply", b, func(c *codec) { replyHeader(c, &r.Header) })
	if err != nil {
		return kvtransfer.Reply{}, err
	}
	r.Sealed = sealed
	return r, nil
}

func join(head, sealed []byte) []byte {
	b := make([]byte, 0, 4+len(head)+len(sealed))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(head)))
	b = append(b, head...)
	return append(b, sealed...)
}

func split(what string, b []byte, header func(*codec)) (sealed []byte, err error) {
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("wire: %s: length %d, limit %d", what, len(b), MaxMessage)
	}
	head, sealed, err := cut(what+": header", b, MaxHeader)
	if err != nil {
		return nil, err
	}
	if err := read(what, head, header); err != nil {
		return nil, err
	}
	if len(sealed) < TagSize {
		return nil, fmt.Errorf("wire: %s: sealed bytes %d, tag %d", what, len(sealed), TagSize)
	}
	return sealed, nil
}

func frameHeader(c *codec, p *kvtransfer.FrameHeader) {
	c.array("frame header", 8)
	key(c, &p.Key)
	c.fixed("claim", p.Claim[:])
	c.number("index", &p.Index)
	c.num("layer from", &p.LayerFrom, MaxLayers)
	c.num("layer to", &p.LayerTo, MaxLayers)
	c.num("row from", &p.RowFrom, MaxRows)
	c.num("row to", &p.RowTo, MaxRows)
	c.num("hidden", &p.Hidden, MaxDim)
}

func replyHeader(c *codec, p *kvtransfer.ReplyHeader) {
	c.array("reply header", 3)
	key(c, &p.Key)
	c.number("number", &p.Number)
	c.fixed("decode key", p.DecodeKey[:])
}
