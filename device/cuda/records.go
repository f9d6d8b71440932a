//go:build cuda && linux

package cuda

import (
	"encoding/binary"
	"unsafe"

	"quire/device"
	"quire/kvtransfer/page"
)

// The structures of kernel/quire.cuh, attention.cuh, heads.cu, rotate.cu and tag.cu, field by field.

type tagRec struct {
	a, b, gen uint64
	attempt   uint32
	_         uint32
}

type faultRec struct {
	code, page    uint32
	seq, slot     int32
	found, wanted tagRec
}

// faultWrite is the code of a fault in writing; others are in reading.
const faultWrite = 2

type poolRec struct {
	data, tags                                           uint64
	pages, pageSize, layers, kvHeads, headDim, headBytes int32
	typ                                                  int32
	check                                                int32
}

type slotRec struct {
	gen     uint64
	page, _ uint32
}

type seqRec struct {
	a, b            uint64
	attempt         uint32
	row, rows, from int32
	slots           int32
	granted         int32
	scratch         int64
}

type batchRec struct {
	tokens, seqOf, seqs, slots, scratch, fault uint64
}

type itemRec struct {
	seq, head, line, lines, split, partial int32
	_                                      [2]int32
}

type shapeRec struct {
	layer, group, dim, lines int32
	qStride, outStride       int32
	scale                    float32
	stage                    int32
}

type ropeRec struct {
	q, k, sin, cos                                                                     uint64
	qHeads, kvHeads, headDim, dims, qStride, kStride, angleStride, interleavedRotation int32
}

type headsRec struct {
	x, bias, norm [3]uint64
	heads, stride [3]int32
	headDim       int32
	eps           float32
}

type markRec struct{ seq, slot int32 }

// owner splits an owner for a record.
func owner(o page.Owner) (a, b uint64, attempt uint32) {
	return binary.LittleEndian.Uint64(o.Handoff[:8]), binary.LittleEndian.Uint64(o.Handoff[8:]), o.Attempt
}

// tag reads a record back.
func (t tagRec) tag() device.Tag {
	var o page.Owner
	binary.LittleEndian.PutUint64(o.Handoff[:8], t.a)
	binary.LittleEndian.PutUint64(o.Handoff[8:], t.b)
	o.Attempt = t.attempt
	return device.Tag{Owner: o, Gen: page.Gen(t.gen)}
}

// err is the fault as an error, or nil.
func (f faultRec) err() error {
	if f.code == 0 {
		return nil
	}
	return &device.Fault{
		Write: f.code == faultWrite, Seq: int(f.seq), Index: int(f.slot), Page: page.ID(f.page), Found: f.found.tag(), Wanted: f.wanted.tag(),
	}
}

// raw sees records as bytes.
func raw[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// as reads a record from bytes.
func as[T any](b []byte) T { return *(*T)(unsafe.Pointer(&b[0])) }
