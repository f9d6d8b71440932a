// Matrix product for many rows, as in prefill: out[i] = W in[i], or out[i] += W in[i].
//
// Shapes: W [outs, depth] packed in panels of 32 outs, in [rows, inStride] f32 (zero from the columns to depth), out [rows, outStride].
// Grid: (ceil(outs / 64), ceil(rows / 32)) blocks of 128 threads. Shared memory: a step of 32 columns of both sides, 12.5 KiB.
// A thread owns 4 neighbouring outputs of 4 rows, 8 rows apart.
//
// Order of summation: that of matvec.cu, so a row's bits are the same from either.
// Oracle: device/cpu, floatRowsGo, within the bound of device/devicetest.
#include "weights.cuh"

#define TILE_OUTS 64
#define TILE_ROWS 32
#define STEP 32 // columns; SEGMENT is a multiple

template <int T>
FN void matmul(const u8 *w, u64 panelBytes, const float *in, float *out, i32 outs, i32 depth, i32 rows, i32 inStride, i32 outStride, i32 add) {
    SHARED f32x4 ws[STEP * TILE_OUTS / 4];  // [STEP][TILE_OUTS]
    SHARED float xs[TILE_ROWS * (STEP + 1)]; // [TILE_ROWS][STEP + 1]: the odd distance keeps rows in different banks
    i32 t = thread(), firstOut = block() * TILE_OUTS, firstRow = block_y() * TILE_ROWS;
    i32 o4 = t % 16, r8 = t / 16; // outputs firstOut + 4*o4..., rows firstRow + r8, + 8, ...
    i32 panels = (outs + PANEL - 1) / PANEL;
    f32x4 acc[4], total[4];
#pragma unroll
    for (i32 i = 0; i < 4; i++) acc[i] = total[i] = f32x4{0, 0, 0, 0};
    for (i32 k = 0; k < depth; k += STEP) {
        // Threads load 2 chunks of 8 columns each: chunk t/64 and t/64 + 2, output t%64.
        for (i32 c = t / TILE_OUTS; c < STEP / 8; c += 2) {
            i32 o = t % TILE_OUTS, panel = firstOut / PANEL + o / PANEL;
            float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            if (panel < panels && k + c * 8 < depth) unpack<T>(w + u64(panel) * panelBytes, k / 8 + c, o % PANEL, v);
#pragma unroll
            for (i32 i = 0; i < 8; i++) reinterpret_cast<float *>(ws)[(c * 8 + i) * TILE_OUTS + o] = v[i];
        }
        for (i32 i = t; i < TILE_ROWS * STEP; i += 128) {
            i32 r = firstRow + i / STEP, c = k + i % STEP;
            xs[i / STEP * (STEP + 1) + i % STEP] = r < rows && c < depth ? in[u64(r) * u64(inStride) + u64(c)] : 0.0f;
        }
        barrier();
#pragma unroll 4
        for (i32 c = 0; c < STEP; c++) {
            f32x4 v = ws[c * (TILE_OUTS / 4) + o4];
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                float x = xs[(r8 + 8 * i) * (STEP + 1) + c];
#pragma unroll
                for (i32 j = 0; j < 4; j++) acc[i][j] = fma_(v[j], x, acc[i][j]);
            }
        }
        if ((k + STEP) % SEGMENT == 0 || k + STEP >= depth) {
#pragma unroll
            for (i32 i = 0; i < 4; i++) total[i] += acc[i], acc[i] = f32x4{0, 0, 0, 0};
        }
        barrier();
    }
#pragma unroll
    for (i32 i = 0; i < 4; i++) {
        i32 r = firstRow + r8 + 8 * i;
        if (r >= rows) continue;
#pragma unroll
        for (i32 j = 0; j < 4; j++) {
            i32 o = firstOut + 4 * o4 + j;
            if (o >= outs) continue;
            float *to = out + u64(r) * u64(outStride) + u64(o);
            *to = add ? *to + total[i][j] : total[i][j];
        }
    }
}

#define MATMUL(type, T)                                                                                                                       \
    KERNEL(matmul_##type, 128)                                                                                                                \
    (const u8 *w, u64 panelBytes, const float *in, float *out, i32 outs, i32 depth, i32 rows, i32 inStride, i32 outStride, i32 add) {         \
        matmul<T>(w, panelBytes, in, out, outs, depth, rows, inStride, outStride, add);                                                      \
    }                                                                                                                                         \
    REGISTER(matmul_##type)
EVERY_TYPE(MATMUL)
