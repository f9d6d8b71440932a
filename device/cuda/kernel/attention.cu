// Causal attention of many rows over their sequences' stored keys and values, as in prefill: tiles, online softmax.
//
// Shapes: q, out [rows, heads*dim] f32; pages as in quire.cuh; items [blocks].
// Grid: one block of 128 threads an item: up to M lines (attention.cuh) of one sequence and key head. Shared memory: 16 KiB of
// staged keys or values, then M * (3*dim + TILE + 5) f32. A thread owns scores (line, position), then outputs (line, number).
// The tag of every page that is read is compared with the sequence's.
// Oracle: device/cpu, runAttend, within the bound of device/devicetest.
#include "attention.cuh"

template <int KV> FN void attend(const Batch *b, const Pool &p, const Shape &a, const Item &it, const float *q, float *out) {
    const Seq &s = b->seqs[it.seq];
    Lines m = lines_of(SHARED_DYNAMIC, a);
    float *allOut = m.alpha + a.M, *allMax = allOut + a.M * a.dim, *allSum = allMax + a.M;
    load_queries(m, s, a, it, q);
    i32 last = position(s, a, it.line + it.lines - 1);
    for (i32 split = 0; split * SPLIT <= last; split++) {
        one_split<KV>(m, b, p, a, it, split);
        for (i32 i = thread(); i < it.lines * a.dim; i += threads()) {
            i32 r = i / a.dim;
            if (m.sum[r] == 0) continue;
            float max = split ? allMax[r] : 0, sum = split ? allSum[r] : 0;
            join(split, m.max[r], m.sum[r], m.out[i], max, sum, allOut[i]);
        }
        barrier();
        for (i32 r = thread(); r < it.lines; r += threads()) {
            if (m.sum[r] == 0) continue;
            float none = 0;
            join(split, m.max[r], m.sum[r], 0, allMax[r], allSum[r], none);
        }
        barrier();
    }
    for (i32 i = thread(); i < it.lines * a.dim; i += threads()) {
        i32 line = it.line + i / a.dim;
        u64 row = u64(s.row + line / a.group);
        out[row * u64(a.outStride) + u64((it.head * a.group + line % a.group) * a.dim + i % a.dim)] = finish(allOut[i], allSum[i / a.dim]);
    }
}

KERNEL(attend_rows, ATTN_THREADS)(const Batch *b, const Pool *pool, const Shape *shape, const Item *items, const float *q, float *out) {
    const Pool p = *pool;
    const Shape a = *shape;
    switch (p.type) {
    case KV_F16: return attend<KV_F16>(b, p, a, items[block()], q, out);
    case KV_F32: return attend<KV_F32>(b, p, a, items[block()], q, out);
    case KV_Q8_0: return attend<KV_Q8_0>(b, p, a, items[block()], q, out);
    }
}
REGISTER(attend_rows)
