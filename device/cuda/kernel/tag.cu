// Owner tags: a page about to be written gets its owner's tag. A page that carries another's is a fault, and stays as it is.
//
// Shapes: marks [n] says which page of which sequence.
// Grid: n/128 blocks of 128 threads. Shared memory: none. A thread owns one page.
// Oracle: kvtransfer/page, Ledger: a page has one owner, and was zeroed (tag included) before it got another.
#include "quire.cuh"

struct Mark {
    i32 seq, slot;
};

KERNEL(tag_pages, 128)(const Batch *b, const Pool *pool, const Mark *marks, i32 n) {
    i32 i = block() * threads() + thread();
    if (i >= n) return;
    const Seq &s = b->seqs[marks[i].seq];
    const Slot &slot = b->slots[s.slots + marks[i].slot];
    Tag nobody = {0, 0, 0, 0, 0}, wanted = wanted_tag(s, slot), found = pool->tags[slot.page];
    if (same(found, wanted)) return;
    if (same(found, nobody))
        pool->tags[slot.page] = wanted;
    else
        raise(b->fault, FAULT_WRITE, marks[i].seq, marks[i].slot, slot.page, found, wanted);
}
REGISTER(tag_pages)
