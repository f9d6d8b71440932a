// SwiGLU: out[i] = gate[i] * sigmoid(gate[i]) * up[i].
//
// Shapes: gate, up, out [rows, stride] f32; out may be gate.
// Grid: (chunks of 256 columns, rows) blocks of 256 threads. Shared memory: none. A thread owns one number.
// Oracle: device/cpu, swiGLUGo.
#include "quire.cuh"

KERNEL(swiglu, 256)(const float *gate, const float *up, float *out, i32 cols, i32 gateStride, i32 upStride, i32 outStride) {
    i32 c = block() * 256 + thread();
    if (c >= cols) return;
    u64 row = u64(block_y());
    float g = gate[row * u64(gateStride) + u64(c)];
    out[row * u64(outStride) + u64(c)] = g / (1.0f + exp_(-g)) * up[row * u64(upStride) + u64(c)];
}
REGISTER(swiglu)
