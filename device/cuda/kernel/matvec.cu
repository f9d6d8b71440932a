// Matrix product for few rows, as in decode, where reading the weights is what takes time: out[i] = W in[i], or out[i] += W in[i].
//
// Shapes: W [outs, depth] packed in panels of 32 outs, in [rows, inStride] f32 (zero from the columns to depth), out [rows, outStride].
// Grid: (panels, ceil(rows / R)) blocks of 256 threads: 8 warps. Shared memory: 8 * R * 32 f32.
// A warp owns every 8th segment of 256 columns of its panel, a lane one output of R rows.
//
// Order of summation, the same in matmul.cu: within a segment of 256 columns one chain of fused multiply-adds, columns ascending,
// from zero; the segments' sums are added ascending, from zero.
// Oracle: device/cpu, floatRowsGo, within the bound of device/devicetest.
#include "weights.cuh"

#define SEGMENT 256 // columns

template <int T, int R>
FN void matvec(const u8 *w, u64 panelBytes, const float *in, float *out, i32 outs, i32 depth, i32 rows, i32 inStride, i32 outStride, i32 add) {
    SHARED float sums[8 * R * PANEL];
    i32 warp = thread() / WARP, lane = thread() % WARP, first = block_y() * R;
    const u8 *panel = w + u64(block()) * panelBytes;
    i32 here = min_(R, rows - first), segments = (depth + SEGMENT - 1) / SEGMENT;
    const float *x = in + u64(first) * u64(inStride);
    float total = 0; // of row first+warp, for warps below R
    for (i32 round = 0; round < segments; round += 8) {
        i32 segment = round + warp;
        if (segment < segments) {
            float acc[R];
#pragma unroll
            for (i32 r = 0; r < R; r++) acc[r] = 0;
            i32 to = min_((segment + 1) * SEGMENT, depth) / 8;
            for (i32 c = segment * (SEGMENT / 8); c < to; c++) {
                float v[8];
                unpack<T>(panel, c, lane, v);
#pragma unroll
                for (i32 r = 0; r < R; r++) {
                    if (r >= here) continue;
                    const f32x4 *xr = reinterpret_cast<const f32x4 *>(x + u64(r) * u64(inStride)) + c * 2;
                    f32x4 lo = xr[0], hi = xr[1];
#pragma unroll
                    for (i32 i = 0; i < 4; i++) acc[r] = fma_(v[i], lo[i], acc[r]);
#pragma unroll
                    for (i32 i = 0; i < 4; i++) acc[r] = fma_(v[i + 4], hi[i], acc[r]);
                }
            }
#pragma unroll
            for (i32 r = 0; r < R; r++) sums[(warp * R + r) * PANEL + lane] = acc[r];
        }
        barrier();
        if (warp < here)
            for (i32 s = 0; s < min_(8, segments - round); s++) total += sums[(s * R + warp) * PANEL + lane];
        barrier();
    }
    i32 o = block() * PANEL + lane;
    if (warp >= here || o >= outs) return;
    float *to = out + u64(first + warp) * u64(outStride) + u64(o);
    *to = add ? *to + total : total;
}

#define MATVEC(name, T, R)                                                                                                                    \
    KERNEL(name, 256)                                                                                                                         \
    (const u8 *w, u64 panelBytes, const float *in, float *out, i32 outs, i32 depth, i32 rows, i32 inStride, i32 outStride, i32 add) {         \
        matvec<T, R>(w, panelBytes, in, out, outs, depth, rows, inStride, outStride, add);                                                   \
    }                                                                                                                                         \
    REGISTER(name)
#define MATVECS(type, T) MATVEC(matvec_##type##_1, T, 1) MATVEC(matvec_##type##_4, T, 4) MATVEC(matvec_##type##_8, T, 8)
EVERY_TYPE(MATVECS)
