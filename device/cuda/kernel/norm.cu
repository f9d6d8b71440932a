// RMSNorm: out[i] = in[i] / sqrt(mean(in[i]^2) + eps) * weight.
//
// Shapes: in, out [rows, stride] f32 (they may be the same), weight [cols] f32.
// Grid: rows blocks of 128 threads. Shared memory: 128 f32. A thread owns columns 128 apart.
// Sum: column c goes to lane c mod 128, ascending; lanes fold in halves: 64, 32, ... 1.
// Oracle: device/cpu, normGo.
#include "quire.cuh"

KERNEL(norm, 128)(const float *in, const float *weight, float *out, i32 cols, i32 inStride, i32 outStride, float eps) {
    SHARED float lanes[128];
    const float *x = in + u64(block()) * u64(inStride);
    float *o = out + u64(block()) * u64(outStride);
    i32 t = thread();
    float sum = 0;
    for (i32 c = t; c < cols; c += 128) sum = fma_(x[c], x[c], sum);
    lanes[t] = sum;
    barrier();
    for (i32 half = 64; half > 0; half /= 2) {
        if (t < half) lanes[t] += lanes[t + half];
        barrier();
    }
    float scale = 1.0f / __builtin_sqrtf(lanes[0] / float(cols) + eps);
    for (i32 c = t; c < cols; c += 128) o[c] = x[c] * scale * weight[c];
}
REGISTER(norm)
