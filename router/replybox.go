package router

import (
	"errors"
	"fmt"
	"sync"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// errNoAttempt says that a reply belongs to no attempt that is open: one that was given up, as a rule.
var errNoAttempt = errors.New("no such attempt")

// replyBox holds the key of each attempt's replies: half of it is made with the Reserve, the other half comes with the
// reservation. Safe for concurrent use.
type replyBox struct {
	mu   sync.Mutex
	keys map[kvtransfer.Key]*replyKey
}

type replyKey struct {
	pair   seal.KeyPair
	decode [32]byte // its public key in the reservation
	key    [32]byte
	ready  bool
}

func newReplyBox() *replyBox { return &replyBox{keys: map[kvtransfer.Key]*replyKey{}} }

// add makes the router's half from a seed and gives its public key; a second call for the same attempt gives the same.
func (b *replyBox) add(key kvtransfer.Key, seed [32]byte) [32]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.keys[key]
	if k == nil {
		k = &replyKey{pair: seal.NewKeyPair(seed)}
		b.keys[key] = k
	}
	return k.pair.Public()
}

// bind completes the key with decode's half; errNoAttempt for an attempt that is over.
func (b *replyBox) bind(key kvtransfer.Key, hash, decode [32]byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.keys[key]
	if k == nil {
		return fmt.Errorf("router: reply key of %s: %w", key, errNoAttempt)
	}
	shared, err := seal.PairReplyKey(k.pair, decode, hash)
	if err != nil {
		return err
	}
	k.decode, k.key, k.ready = decode, shared, true
	return nil
}

// open gives the body of a reply; an error for attempts that are over, unknown or not reserved, and for what does not open.
func (b *replyBox) open(r kvtransfer.Reply) (kvtransfer.ReplyBody, error) {
	b.mu.Lock()
	k := b.keys[r.Header.Key]
	if k == nil || !k.ready || k.decode != r.Header.DecodeKey {
		b.mu.Unlock()
		return kvtransfer.ReplyBody{}, fmt.Errorf("router: reply %d of %s: %w", r.Header.Number, r.Header.Key, errNoAttempt)
	}
	key := k.key
	b.mu.Unlock()
	plain, err := seal.OpenReply(key, r.Header, r.Sealed)
	if err != nil {
		return kvtransfer.ReplyBody{}, err
	}
	return wire.Decode[kvtransfer.ReplyBody](plain)
}

// drop forgets an attempt's key.
func (b *replyBox) drop(key kvtransfer.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.keys, key)
}
