package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"quire/kvtransfer"
	"quire/kvtransfer/wire"
)

// SealFrame encrypts the bytes of a frame: ciphertext, then the 16-byte tag. The nonce is the frame's index, so one key must
// never seal two different contents under one index: sending again means sending the same sealed bytes.
func SealFrame(key, reservationHash [32]byte, h kvtransfer.FrameHeader, plain []byte) []byte {
	dst := make([]byte, 0, len(plain)+wire.TagSize)
	return newGCM(key).Seal(dst, nonce(h.Index), plain, frameData(reservationHash, h))
}

// SealFrameIn is SealFrame where the bytes lie: message[at:] is sealed and the tag appended.
func SealFrameIn(key, reservationHash [32]byte, h kvtransfer.FrameHeader, message []byte, at int) []byte {
	message = slices.Grow(message, wire.TagSize)
	sealed := newGCM(key).Seal(message[at:at], nonce(h.Index), message[at:], frameData(reservationHash, h))
	return message[:at+len(sealed)]
}

// OpenFrame decrypts into dst's memory, which must not overlap sealed, and grows it if needed. On an error dst's memory holds
// nothing of use, and nothing else has changed.
func OpenFrame(key, reservationHash [32]byte, h kvtransfer.FrameHeader, sealed, dst []byte) ([]byte, error) {
	plain, err := newGCM(key).Open(dst[:0], nonce(h.Index), sealed, frameData(reservationHash, h))
	if err != nil {
		return nil, fmt.Errorf("seal: frame %d of %s: %d bytes do not open", h.Index, h.Key, len(sealed))
	}
	return plain, nil
}

// SealReply encrypts an encoded ReplyBody. The nonce is the reply's number: the rule of SealFrame holds.
func SealReply(key [32]byte, h kvtransfer.ReplyHeader, body []byte) []byte {
	return newGCM(key).Seal(nil, nonce(h.Number), body, replyData(h))
}

// OpenReply decrypts the body of a reply.
func OpenReply(key [32]byte, h kvtransfer.ReplyHeader, sealed []byte) ([]byte, error) {
	body, err := newGCM(key).Open(nil, nonce(h.Number), sealed, replyData(h))
	if err != nil {
		return nil, fmt.Errorf("seal: reply %d of %s: %d bytes do not open", h.Number, h.Key, len(sealed))
	}
	return body, nil
}

// Tag is the authentication tag at the end of sealed bytes; the zero tag if there are too few.
func Tag(sealed []byte) (tag [16]byte) {
	if len(sealed) >= len(tag) {
		copy(tag[:], sealed[len(sealed)-len(tag):])
	}
	return tag
}

// Digest is the SHA-256 over the tags of all frames of a hand-off in index order.
func Digest(tags [][16]byte) (sum [32]byte) {
	h := sha256.New()
	for i := range tags {
		h.Write(tags[i][:])
	}
	h.Sum(sum[:0])
	return sum
}

// newGCM cannot fail: the key has a size that AES knows.
func newGCM(key [32]byte) cipher.AEAD {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic("seal: aes: " + err.Error())
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic("seal: gcm: " + err.Error())
	}
	return gcm
}

func nonce(n uint32) []byte { return binary.BigEndian.AppendUint32(make([]byte, 8, 12), n) }

// frameData is a frame's associated data: reservation hash, hand-off and attempt, claim, index, layer and row range, length
// of the vector at the end.
func frameData(reservationHash [32]byte, h kvtransfer.FrameHeader) []byte {
	b := make([]byte, 0, 160)
	b = append(b, "quire frame 1\x00"...)
	b = append(b, reservationHash[:]...)
	b = append(b, h.Key.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, h.Key.Attempt)
	b = append(b, h.Claim[:]...)
	b = binary.BigEndian.AppendUint32(b, h.Index)
	for _, n := range []int{h.LayerFrom, h.LayerTo, h.RowFrom, h.RowTo, h.Hidden} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// replyData is a reply's associated data: hand-off and attempt, number, decode's key.
func replyData(h kvtransfer.ReplyHeader) []byte {
	b := make([]byte, 0, 80)
	b = append(b, "quire reply 1\x00"...)
	b = append(b, h.Key.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, h.Key.Attempt)
	b = binary.BigEndian.AppendUint32(b, h.Number)
	return append(b, h.DecodeKey[:]...)
}
