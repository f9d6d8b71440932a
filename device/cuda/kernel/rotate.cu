// RoPE: turns the first dims numbers of each head of queries and keys by the angles of the row's position, in place.
//
// Shapes: q [rows, qHeads*headDim], k [rows, kvHeads*headDim] f32; sin, cos [context, dims/2] f32. q has 0 heads for keys alone.
// Grid: rows blocks of 128 threads. Shared memory: none. A thread owns pairs of numbers, 128 pairs apart.
// Oracle: device/cpu, task.turn: the products are rounded before they are added, so the bits are equal.
#include "quire.cuh"

struct Rope {
    float *q, *k;
    const float *sin, *cos;
    i32 qHeads, kvHeads, headDim, dims;
    i32 qStride, kStride, angleStride, interleaved;
};

KERNEL(rotate, 128)(const Batch *b, const Rope *rope) {
    Rope r = *rope;
    i32 row = block(), pairs = r.dims / 2;
    const Seq &s = b->seqs[b->seqOf[row]];
    u64 pos = u64(s.from + row - s.row);
    for (i32 i = thread(); i < (r.qHeads + r.kvHeads) * pairs; i += threads()) {
        i32 head = i / pairs, pair = i % pairs;
        float *x = head < r.qHeads ? r.q + u64(row) * u64(r.qStride) + u64(head * r.headDim)
                                   : r.k + u64(row) * u64(r.kStride) + u64((head - r.qHeads) * r.headDim);
        i32 at = r.interleaved ? 2 * pair : pair, to = r.interleaved ? at + 1 : at + pairs;
        float u = x[at], v = x[to], sn = r.sin[pos * u64(r.angleStride) + u64(pair)], cs = r.cos[pos * u64(r.angleStride) + u64(pair)];
        x[at] = u * cs - v * sn;
        x[to] = u * sn + v * cs;
    }
}
REGISTER(rotate)
