// Causal attention of few rows over long contexts, as in decode: a block for each split of 256 absolute positions, then one pass
// that joins the splits in order. The splits are fixed, so the bits are those of attend_rows, whatever else is in the batch.
//
// Shapes: as in attention.cu; partial [items][M] maxima and sums, [items][M][dim] outputs, f32.
// Grid: attend_split: one block of 128 threads an item (with its split); attend_join: one block of 64 threads a line.
// Shared memory: 16 KiB, then M * (2*dim + TILE + 3) f32; attend_join none. A thread of attend_join owns numbers of the head, 64 apart.
// Oracle: device/cpu, runAttend, within the bound of device/devicetest.
#include "attention.cuh"

template <int KV> FN void attend_one(const Batch *b, const Pool &p, const Shape &a, const Item &it, const float *q, float *state, float *outs) {
    Lines m = lines_of(SHARED_DYNAMIC, a);
    load_queries(m, b->seqs[it.seq], a, it, q);
    one_split<KV>(m, b, p, a, it, it.split);
    for (i32 r = thread(); r < it.lines; r += threads()) {
        float *st = state + (u64(it.partial) * u64(a.M) + u64(r)) * 2;
        st[0] = m.max[r], st[1] = m.sum[r];
    }
    float *o = outs + u64(it.partial) * u64(a.M * a.dim);
    for (i32 i = thread(); i < it.lines * a.dim; i += threads()) o[i] = m.out[i];
}

KERNEL(attend_split, ATTN_THREADS)
(const Batch *b, const Pool *pool, const Shape *shape, const Item *items, const float *q, float *state, float *outs) {
    const Pool p = *pool;
    const Shape a = *shape;
    switch (p.type) {
    case KV_F16: return attend_one<KV_F16>(b, p, a, items[block()], q, state, outs);
    case KV_F32: return attend_one<KV_F32>(b, p, a, items[block()], q, state, outs);
    case KV_Q8_0: return attend_one<KV_Q8_0>(b, p, a, items[block()], q, state, outs);
    }
}
REGISTER(attend_split)

// Item i is the first split of its lines; the others follow it.
KERNEL(attend_join, 64)(const Batch *b, const Shape *shape, const Item *items, const float *state, const float *outs, float *out) {
    const Shape a = *shape;
    const Item it = items[block()];
    i32 r = block_y();
    if (r >= it.lines) return;
    const Seq &s = b->seqs[it.seq];
    i32 line = it.line + r, splits = position(s, a, line) / SPLIT + 1;
    u64 row = u64(s.row + line / a.group);
    float *o = out + row * u64(a.outStride) + u64((it.head * a.group + line % a.group) * a.dim);
    for (i32 d = thread(); d < a.dim; d += 64) {
        float max = 0, sum = 0, all = 0;
        for (i32 split = 0; split < splits; split++) {
            u64 at = u64(it.partial + split) * u64(a.M) + u64(r);
            join(split, state[at * 2], state[at * 2 + 1], outs[at * u64(a.dim) + u64(d)], max, sum, all);
        }
        o[d] = finish(all, sum);
    }
}
REGISTER(attend_join)
