// Weights as the device keeps them: panels of 32 output rows, lane r of a warp being row r. See device/cuda/matrix.go, which packs.
//
//   F32        [depth/4][32][4] f32         depth: columns rounded up to a multiple of 8; beyond the columns zero
//   F16, BF16  [depth/8][32][8] u16
//   Q8_0       per block of 32 columns: [32] f16 scale, [2][32][16] int8
//   Q4_0       per block: [32] f16 scale, [32][16] bytes: columns 0..15 in the low nibbles, 16..31 in the high ones, plus 8
//   Q4_1       per block: [32] f16 scale, [32] f16 minimum, [32][16] bytes of nibbles
//   others     per block, as it is in a file, in words of 4 bytes: [words][32] u32; Q5_0 has 2 bytes of zeros after its scale,
//              Q6_K at its end
#pragma once
#include "quire.cuh"

#define PANEL 32

// Types of weights, numbered as device.Type.
enum { T_F32 = 1, T_F16, T_BF16, T_Q8_0, T_Q4_0, T_Q4_1, T_Q5_0, T_Q5_1, T_Q4_K, T_Q5_K, T_Q6_K };

// unpack<T>(panel, chunk, lane, w) gives 8 neighbouring columns [8*chunk, 8*chunk+8) of a row. The numbers are those of the
// formats, exactly as the CPU has them: scale times integer is exact, but for Q6_K; a minimum is added after that, and rounds.
template <int T> FN void unpack(const u8 *panel, i32 chunk, i32 lane, float *w);

template <> FN_OF void unpack<T_F32>(const u8 *panel, i32 chunk, i32 lane, float *w) {
    const f32x4 *p = reinterpret_cast<const f32x4 *>(panel);
    f32x4 a = p[(chunk * 2) * PANEL + lane], b = p[(chunk * 2 + 1) * PANEL + lane];
#pragma unroll
    for (i32 i = 0; i < 4; i++) w[i] = a[i], w[i + 4] = b[i];
}

template <> FN_OF void unpack<T_F16>(const u8 *panel, i32 chunk, i32 lane, float *w) {
    u32x4 a = reinterpret_cast<const u32x4 *>(panel)[chunk * PANEL + lane];
#pragma unroll
    for (i32 i = 0; i < 4; i++) w[2 * i] = from_half(u16(a[i])), w[2 * i + 1] = from_half(u16(a[i] >> 16));
}

template <> FN_OF void unpack<T_BF16>(const u8 *panel, i32 chunk, i32 lane, float *w) {
    u32x4 a = reinterpret_cast<const u32x4 *>(panel)[chunk * PANEL + lane];
#pragma unroll
    for (i32 i = 0; i < 4; i++) w[2 * i] = from_bits(a[i] << 16), w[2 * i + 1] = from_bits(a[i] & 0xffff0000);
}

template <> FN_OF void unpack<T_Q8_0>(const u8 *panel, i32 chunk, i32 lane, float *w) {
    const u8 *b = panel + (chunk >> 2) * (64 + 1024);
    float scale = from_half(reinterpret_cast<const u16 *>(b)[lane]);
    const u32 *q = reinterpret_cast<const u32 *>(b + 64 + ((chunk >> 1 & 1) * PANEL + lane) * 16 + (chunk & 1) * 8);
    u32 q0 = q[0], q1 = q[1];
#pragma unroll
    for (i32 i = 0; i < 4; i++) {
        w[i] = scale * float(i32(q0 << (24 - 8 * i)) >> 24);
        w[i + 4] = scale * float(i32(q1 << (24 - 8 * i)) >> 24);
    }
}

// nibbles gives 8 of a row's 32 nibbles: those of columns [8*quarter, 8*quarter+8).
FN void nibbles(const u8 *row, i32 quarter, i32 *n) {
    const u32 *q = reinterpret_cast<const u32 *>(row + (quarter & 1) * 8);
    i32 shift = (quarter >> 1) * 4;
    u32 q0 = q[0] >> shift, q1 = q[1] >> shift;
#pragma unroll
    for (i32 i = 0; i < 4; i++) n[i] = i32(q0 >> (8 * i) & 15), n[i + 4] = i32(q1 >> (8 * i) & 15);
}

template <> FN_OF void unpack<T_Q4_0>(const u8 *panel, i32 chunk, i32 lane, float *w) {
    const u8 *b = panel + (chunk >> 2) * (64 + 512);
    float scale = from_half(reinterpret_cast<const u16 *>(b)[lane]);
    i32 n[8];
    nibbles(b + 64 + lane * 16, chunk & 3, n);
#pragma unroll
    for (i32 i = 0; i < 8; i++) w[i] = scale * float(n[i] - 8);
}

template <> FN_OF void unpack<T_Q4_1>(const u8 *panel, i32 chunk, i32 lane, float *w) {
    const u8 *b = panel + (chunk >> 2) * (128 + 512);
    float scale = from_half(reinterpret_cast<const u16 *>(b)[lane]), low = from_half(reinterpret_cast<const u16 *>(b)[PANEL + lane]);
    i32 n[8];
    nibbles(b + 128 + lane * 16, chunk & 3, n);
#pragma unroll
    for (i32 i = 0; i < 8; i++) w[i] = scale * float(n[i]) + low;
}

// word is the i-th word of a lane's block, its block beginning at b.
FN u32 word(const u8 *b, i32 i, i32 lane) { return reinterpret_cast<const u32 *>(b)[i * PANEL + lane]; }
FN u32 byte(const u8 *b, i32 i, i32 lane) { return word(b, i / 4, lane) >> (i % 4 * 8) & 255; }

// Blocks of 32 with a fifth bit: word 0 the scale and, in its upper half, the minimum; word 1 the fifth bits; words 2 to 5 nibbles.
FN void fifths(const u8 *b, i32 quarter, i32 lane, i32 *n) {
    u32 fifth = word(b, 1, lane) >> (quarter * 8);
    i32 at = 2 + (quarter & 1) * 2, shift = (quarter >> 1) * 4;
    u32 q0 = word(b, at, lane) >> shift, q1 = word(b, at + 1, lane) >> shift;
#pragma unroll
    for (i32 i = 0; i < 4; i++) {
        n[i] = i32((q0 >> (8 * i) & 15) | (fifth >> i & 1) << 4);
        n[i + 4] = i32((q1 >> (8 * i) & 15) | (fifth >> (i + 4) & 1) << 4);
    }
}

template <> FN_OF void unpack<T_Q5_0>(const u8 *panel, i32 chunk, i32 lane, float *w) {
    const u8 *b = panel + (chunk >> 2) * (24 * PANEL);
    float scale = from_half(u16(word(b, 0, lane)));
    i32 n[8];
    fifths(b, chunk & 3, lane, n);
#pragma unroll
    for (i32 i = 0; i < 8; i++) w[i] = scale * float(n[i] - 16);
}

template <> FN_OF void unpack<T_Q5_1>(const u8 *panel, i32 chunk, i32 lane, float *w) {
    const u8 *b = panel + (chunk >> 2) * (24 * PANEL);
    u32 head = word(b, 0, lane);
    float scale = from_half(u16(head)), low = from_half(u16(head >> 16));
    i32 n[8];
    fifths(b, chunk & 3, lane, n);
#pragma unroll
    for (i32 i = 0; i < 8; i++) w[i] = scale * float(n[i]) + low;
}

// Q4_K and Q5_K: word 0 two factors, words 1 to 3 scales and minima of 6 bits of 8 runs of 32, (8 words of fifth bits,) 32 words of
// nibbles: 8 for two runs.
template <bool fifth> FN_OF void unpack_k(const u8 *panel, i32 chunk, i32 lane, float *w) {
    const i32 words = fifth ? 44 : 36, nibbles = fifth ? 12 : 4;
    const u8 *b = panel + (chunk >> 5) * (words * 4 * PANEL);
    i32 run = chunk >> 2 & 7, part = chunk & 3;
    u32 head = word(b, 0, lane), sc, mn;
    if (run < 4) {
        sc = byte(b, 4 + run, lane) & 63;
        mn = byte(b, 8 + run, lane) & 63;
    } else {
        u32 both = byte(b, 8 + run, lane);
        sc = (both & 15) | (byte(b, run, lane) & 0xc0) >> 2;
        mn = both >> 4 | (byte(b, 4 + run, lane) & 0xc0) >> 2;
    }
    float scale = from_half(u16(head)) * float(i32(sc)), low = from_half(u16(head >> 16)) * float(i32(mn));
    i32 at = nibbles + (run >> 1) * 8 + part * 2, shift = (run & 1) * 4;
#pragma unroll
    for (i32 h = 0; h < 2; h++) {
        u32 q = word(b, at + h, lane) >> shift, f = fifth ? word(b, 4 + part * 2 + h, lane) >> run : 0;
#pragma unroll
        for (i32 i = 0; i < 4; i++) w[4 * h + i] = scale * float(i32((q >> (8 * i) & 15) | (f >> (8 * i) & 1) << 4)) - low;
    }
}
template <> FN_OF void unpack<T_Q4_K>(const u8 *panel, i32 chunk, i32 lane, float *w) { unpack_k<false>(panel, chunk, lane, w); }
template <> FN_OF void unpack<T_Q5_K>(const u8 *panel, i32 chunk, i32 lane, float *w) { unpack_k<true>(panel, chunk, lane, w); }

// Q6_K: 32 words of nibbles, 16 words of pairs of high bits, 16 scales (int8) of 16 numbers, factor. Each half of 128 numbers has 16
// words of nibbles (the low ones for numbers 0 to 63) and 8 of pairs (a pair for every 32 numbers).
template <> FN_OF void unpack<T_Q6_K>(const u8 *panel, i32 chunk, i32 lane, float *w) {
    const u8 *b = panel + (chunk >> 5) * (53 * 4 * PANEL);
    i32 half = chunk >> 4 & 1, c = chunk & 15;
    i32 sc = i32(byte(b, 192 + (chunk & 31) / 2, lane) << 24) >> 24;
    float scale = from_half(u16(word(b, 52, lane))) * float(sc);
    i32 low = half * 16 + (c & 7) * 2, shift = (c >> 3) * 4, high = 32 + half * 8 + (c & 3) * 2, pair = (c >> 2) * 2;
#pragma unroll
    for (i32 h = 0; h < 2; h++) {
        u32 q = word(b, low + h, lane) >> shift, p = word(b, high + h, lane) >> pair;
#pragma unroll
        for (i32 i = 0; i < 4; i++) w[4 * h + i] = scale * float(i32((q >> (8 * i) & 15) | (p >> (8 * i) & 3) << 4) - 32);
    }
}

// EVERY_TYPE(X) expands X(name, T) for every type.
#define EVERY_TYPE(X)                                                                                                                        \
    X(f32, T_F32) X(f16, T_F16) X(bf16, T_BF16) X(q8_0, T_Q8_0) X(q4_0, T_Q4_0) X(q4_1, T_Q4_1) X(q5_0, T_Q5_0) X(q5_1, T_Q5_1)                \
    X(q4_k, T_Q4_K) X(q5_k, T_Q5_K) X(q6_k, T_Q6_K)
