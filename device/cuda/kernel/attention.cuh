// Attention over one split: 256 absolute positions, a multiple of 256 first, in tiles of 64. Both attention kernels are made of
// this, so a query's bits do not depend on which of them computed it, nor on chunks, pages or neighbours.
//
// A line is one query head of one row: line = query * group + head of the group that shares keys. A block has up to M lines of
// one sequence and one key head.
//
// Order: scores are chains of fused multiply-adds over the head, ascending. A tile's sum of weights takes 8 lanes, position p in
// lane p mod 8, folded (0+4)+(2+6) + (1+5)+(3+7). Values are added to the running output, scaled to the new maximum, by one
// chain over positions, ascending. Splits are joined ascending (join).
#pragma once
#include "quire.cuh"

#define TILE 64   // positions
#define SPLIT 256 // positions
#define ATTN_THREADS 128
#define STAGE_BYTES 16384
#define NEVER -3.0e38f // below every score

// Item is what a block computes.
struct Item {
    i32 seq, head;   // of the batch; key head
    i32 line, lines; // lines [line, line+lines) of the sequence
    i32 split;       // attend_split: which
    i32 partial;     // attend_split: its place in the partial results
    i32 unused[2];
};

// Shape is what does not change during a step.
struct Shape {
    i32 layer, group, dim, M; // M: lines of a block at most
    i32 qStride, outStride;
    float scale;
    i32 stage; // positions staged at a time: a power of two, stage * headBytes <= STAGE_BYTES
};

// Lines is a block's shared memory, M lines each.
struct Lines {
    float *q, *out, *weights; // [M][dim], [M][dim], [M][TILE]
    float *max, *sum, *alpha; // [M]
    u8 *stage;                // STAGE_BYTES
};

FN Lines lines_of(u8 *memory, const Shape &a) {
    Lines s;
    s.stage = memory;
    s.q = reinterpret_cast<float *>(memory + STAGE_BYTES);
    s.out = s.q + a.M * a.dim;
    s.weights = s.out + a.M * a.dim;
    s.max = s.weights + a.M * TILE;
    s.sum = s.max + a.M;
    s.alpha = s.sum + a.M;
    return s;
}

FN i32 position(const Seq &s, const Shape &a, i32 line) { return s.from + line / a.group; }

FN void load_queries(const Lines &m, const Seq &s, const Shape &a, const Item &it, const float *q) {
    for (i32 i = thread(); i < it.lines * a.dim; i += threads()) {
        i32 line = it.line + i / a.dim;
        u64 row = u64(s.row + line / a.group);
        m.q[i] = q[row * u64(a.qStride) + u64((it.head * a.group + line % a.group) * a.dim + i % a.dim)] * a.scale;
    }
}

// check_tags compares the tags of the pages that hold positions [from, to) with the sequence's.
FN void check_tags(const Batch *b, const Pool &p, const Item &it, i32 from, i32 to) {
    if (!p.check) return;
    const Seq &s = b->seqs[it.seq];
    for (i32 i = from / p.pageSize + thread(); i <= (to - 1) / p.pageSize; i += threads()) {
        const Slot &slot = b->slots[s.slots + i];
        Tag wanted = wanted_tag(s, slot), found = p.tags[slot.page];
        if (!same(found, wanted)) raise(b->fault, FAULT_READ, it.seq, i, slot.page, found, wanted);
    }
}

// stage_units copies keys or values of positions [from, from+n) to shared memory, as stored: [n] heads.
template <class U> FN void stage_units(const Lines &m, const Batch *b, const Pool &p, const Shape &a, const Item &it, i32 part, i32 from, i32 n) {
    const Seq &s = b->seqs[it.seq];
    i32 units = p.headBytes / i32(sizeof(U));
    for (i32 i = thread(); i < n * units; i += threads()) {
        i32 pos = from + i / units;
        u32 page = b->slots[s.slots + pos / p.pageSize].page;
        const u8 *head = head_of(p, page, a.layer, part, it.head) + u64(pos % p.pageSize) * u64(p.headBytes);
        reinterpret_cast<U *>(m.stage)[i] = reinterpret_cast<const U *>(head)[i % units];
    }
}
template <int KV> FN void stage_rows(const Lines &m, const Batch *b, const Pool &p, const Shape &a, const Item &it, i32 part, i32 from, i32 n) {
    if (KV == KV_Q8_0)
        stage_units<u16>(m, b, p, a, it, part, from, n);
    else
        stage_units<u32x4>(m, b, p, a, it, part, from, n);
}

// number gives the d-th number of a stored head.
template <int KV> FN float number(const u8 *head, i32 d);
template <> FN_OF float number<KV_F32>(const u8 *head, i32 d) { return reinterpret_cast<const float *>(head)[d]; }
template <> FN_OF float number<KV_F16>(const u8 *head, i32 d) { return from_half(reinterpret_cast<const u16 *>(head)[d]); }
template <> FN_OF float number<KV_Q8_0>(const u8 *head, i32 d) {
    const u8 *b = head + d / 32 * 34;
    return from_half(*reinterpret_cast<const u16 *>(b)) * float(i32(u32(b[2 + d % 32]) << 24) >> 24);
}

// scores fills weights[.][0, n) of a tile with the products of queries and keys.
template <int KV> FN void scores(const Lines &m, const Batch *b, const Pool &p, const Shape &a, const Item &it, i32 tile, i32 n) {
    for (i32 at = 0; at < n; at += a.stage) {
        i32 here = min_(a.stage, n - at);
        barrier();
        stage_rows<KV>(m, b, p, a, it, 0, tile + at, here);
        barrier();
        for (i32 i = thread(); i < it.lines * a.stage; i += threads()) {
            i32 r = i / a.stage, c = i % a.stage;
            if (c >= here) continue;
            const u8 *k = m.stage + c * p.headBytes;
            const float *q = m.q + r * a.dim;
            float dot = 0;
#pragma unroll 4
            for (i32 d = 0; d < a.dim; d++) dot = fma_(q[d], number<KV>(k, d), dot);
            m.weights[r * TILE + at + c] = dot;
        }
    }
    barrier();
}

// softmax turns a tile's scores into weights and moves each line's maximum and sum. 8 neighbouring threads have a line.
FN void softmax(const Lines &m, const Seq &s, const Shape &a, const Item &it, i32 tile) {
    for (i32 r0 = 0; r0 < it.lines; r0 += ATTN_THREADS / 8) {
        i32 r = r0 + thread() / 8, j = thread() % 8;
        i32 seen = r < it.lines ? min_(TILE, position(s, a, it.line + r) + 1 - tile) : 0;
        float *w = m.weights + (seen > 0 ? r : 0) * TILE, old = seen > 0 ? m.max[r] : NEVER, top = old, sum = 0;
        for (i32 c = j; c < seen; c += 8) top = max_(top, w[c]);
        for (i32 bit = 4; bit > 0; bit /= 2) top = max_(top, shuffle_xor(top, bit));
        for (i32 c = j; c < seen; c += 8) {
            w[c] = exp_(w[c] - top);
            sum += w[c];
        }
        for (i32 bit = 4; bit > 0; bit /= 2) sum += shuffle_xor(sum, bit);
        if (seen <= 0 || j > 0) continue;
        m.alpha[r] = exp_(old - top);
        m.max[r] = top;
        m.sum[r] = m.sum[r] * m.alpha[r] + sum;
    }
    barrier();
}

// values adds a tile's weighted values to the lines' outputs.
template <int KV> FN void values(const Lines &m, const Batch *b, const Pool &p, const Shape &a, const Item &it, i32 tile, i32 n) {
    const Seq &s = b->seqs[it.seq];
    for (i32 at = 0; at < n; at += a.stage) {
        i32 here = min_(a.stage, n - at);
        barrier();
        stage_rows<KV>(m, b, p, a, it, 1, tile + at, here);
        barrier();
        for (i32 i = thread(); i < it.lines * a.dim; i += threads()) {
            i32 r = i / a.dim, d = i % a.dim, seen = min_(here, position(s, a, it.line + r) + 1 - tile - at);
            if (seen <= 0) continue;
                        const float *w = m.weights + r * TILE + at;
            float o = at == 0 ? m.out[i] * m.alpha[r] : m.out[i];
#pragma unroll 4
            for (i32 c = 0; c < seen; c++) o = fma_(w[c], number<KV>(m.stage + c * p.headBytes, d), o);
            m.out[i] = o;
        }
    }
    barrier();
}

// one_split computes a split for all lines of an item, up to the position of the last: out, max and sum. A line that sees nothing
// of it has sum 0.
template <int KV> FN void one_split(const Lines &m, const Batch *b, const Pool &p, const Shape &a, const Item &it, i32 split) {
    const Seq &s = b->seqs[it.seq];
    i32 end = min_(position(s, a, it.line + it.lines - 1) + 1, (split + 1) * SPLIT);
    for (i32 i = thread(); i < it.lines * a.dim; i += threads()) m.out[i] = 0;
    for (i32 r = thread(); r < it.lines; r += threads()) m.max[r] = NEVER, m.sum[r] = 0;
    check_tags(b, p, it, split * SPLIT, end);
    for (i32 tile = split * SPLIT; tile < end; tile += TILE) {
        i32 n = min_(TILE, end - tile);
        scores<KV>(m, b, p, a, it, tile, n);
        softmax(m, s, a, it, tile);
        values<KV>(m, b, p, a, it, tile, n);
    }
}

// join takes a split's maximum, sum and one number of its output into the running ones. The first split is taken as it is.
FN void join(i32 split, float max, float sum, float out, float &allMax, float &allSum, float &allOut) {
    if (split == 0) {
        allMax = max, allSum = sum, allOut = out;
        return;
    }
    float top = max_(allMax, max), mine = exp_(max - top), old = exp_(allMax - top);
    allSum = fma_(sum, mine, allSum * old);
    allOut = fma_(out, mine, allOut * old);
    allMax = top;
}

FN float finish(float out, float sum) { return out * (1.0f / sum) + 0.0f; } // + 0: one zero, whatever its sign was
