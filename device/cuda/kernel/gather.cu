// Gather: out[i] = in[rows[i]].
//
// Shapes: in, out [., stride] f32, rows [blocks] i32.
// Grid: one block of 256 threads a row. Shared memory: none. A thread owns columns 256 apart.
// Oracle: device/cpu, runGather.
#include "quire.cuh"

KERNEL(gather, 256)(const float *in, float *out, const i32 *rows, i32 cols, i32 inStride, i32 outStride) {
    const float *x = in + u64(rows[block()]) * u64(inStride);
    float *o = out + u64(block()) * u64(outStride);
    for (i32 c = thread(); c < cols; c += threads()) o[c] = x[c];
}
REGISTER(gather)
