// Paged KV write: keys and values of each row go to its sequence's pages, or to the sequence's scratch.
//
// Shapes: k, v [rows, kvHeads*headDim] f32. Pages and scratch as in quire.cuh.
// Grid: rows blocks of 128 threads. Shared memory: none. A thread owns runs of 32 numbers of a head.
// The tags of the pages were set before (tag_pages); after a fault nothing is written.
// Oracle: device/cpu, runRotate.
#include "quire.cuh"

// put_block stores 32 numbers, or fewer at a head's end, from number d of a head on.
FN void put_block(u8 *head, i32 type, const float *x, i32 d, i32 n) {
    if (type == KV_F16) {
        for (i32 i = 0; i < n; i++) reinterpret_cast<u16 *>(head)[d + i] = to_half(x[d + i]);
        return;
    }
    if (type == KV_F32) {
        for (i32 i = 0; i < n; i++) reinterpret_cast<float *>(head)[d + i] = x[d + i];
        return;
    }
    float top = 0;
    for (i32 i = 0; i < 32; i++) top = max_(top, from_bits(bits(x[d + i]) & 0x7fffffff));
    float inverse = top > 0 ? 127.0f / top : 0.0f;
    u8 *b = head + d / 32 * 34;
    *reinterpret_cast<u16 *>(b) = to_half(top / 127.0f);
    for (i32 i = 0; i < 32; i++) b[2 + i] = u8(i32(__builtin_rintf(x[d + i] * inverse)));
}

KERNEL(store, 128)(const Batch *b, const Pool *pool, const float *k, const float *v, i32 layer, i32 kStride, i32 vStride) {
    if (faulted(b->fault)) return;
    const Pool p = *pool;
    i32 row = block(), perHead = (p.headDim + 31) / 32, all = 2 * p.kvHeads * perHead;
    const Seq &s = b->seqs[b->seqOf[row]];
    i32 pos = s.from + row - s.row, slot = pos % p.pageSize;
    u32 page = b->slots[s.slots + pos / p.pageSize].page;
    u64 rowBytes = u64(2 * p.kvHeads) * u64(p.headBytes);
    u8 *scratch = b->scratch + s.scratch + (u64(layer) * u64(s.rows) + u64(row - s.row)) * rowBytes;
    for (i32 i = thread(); i < all; i += threads()) {
        i32 head = i / perHead, part = head / p.kvHeads, d = i % perHead * 32;
        head %= p.kvHeads;
        const float *x = (part ? v + u64(row) * u64(vStride) : k + u64(row) * u64(kStride)) + head * p.headDim;
        u8 *to = s.granted ? head_of(p, page, layer, part, head) + u64(slot) * u64(p.headBytes)
                           : scratch + u64(part * p.kvHeads + head) * u64(p.headBytes);
        put_block(to, p.type, x, d, min_(32, p.headDim - d));
    }
}
REGISTER(store)
