// What some models do to queries, keys and values before heads turn: a bias is added, then each head of queries and keys is normed.
//
// Shapes: q [rows, qHeads*headDim], k, v [rows, kvHeads*headDim] f32, in place; biases as long as a row, norms [headDim]; all but k
// and v may be missing (null).
// Grid: rows blocks of 128 threads. Shared memory: none. A warp owns every 4th head, a lane numbers 32 apart.
// Sum of a head: number i in lane i mod 32, ascending; lanes fold 16, 8, 4, 2, 1 apart.
// Oracle: device/cpu, plan.prepare.
#include "quire.cuh"

struct Heads {
    float *x[3];          // q, k, v
    const float *bias[3]; // of them
    const float *norm[3]; // of q and k
    i32 heads[3], stride[3];
    i32 headDim;
    float eps;
};

KERNEL(heads, 128)(const Heads *all) {
    i32 warp = thread() / WARP, lane = thread() % WARP;
    for (i32 part = 0; part < 3; part++) {
        const float *bias = all->bias[part], *norm = all->norm[part];
        if (!bias && !norm) continue;
        for (i32 head = warp; head < all->heads[part]; head += 4) {
            float *x = all->x[part] + u64(block()) * u64(all->stride[part]) + u64(head * all->headDim);
            float sum = 0;
            for (i32 i = lane; i < all->headDim; i += WARP) {
                if (bias) x[i] += bias[head * all->headDim + i];
                sum = fma_(x[i], x[i], sum);
            }
            if (!norm) continue;
            for (i32 apart = 16; apart > 0; apart /= 2) sum += shuffle_xor(sum, apart);
            float scale = 1.0f / __builtin_sqrtf(sum / float(all->headDim) + all->eps);
            for (i32 i = lane; i < all->headDim; i += WARP) x[i] = x[i] * scale * norm[i];
        }
    }
}
REGISTER(heads)
