// Embedding: out[i] = table[tokens[i]].
//
// Shapes: table [vocab, cols] packed, out [rows, stride] f32.
// Grid: rows blocks of 128 threads. Shared memory: none. A thread owns chunks of 8 columns, 128 chunks apart.
// Oracle: device/cpu, runEmbed.
#include "weights.cuh"

template <int T> FN void embed(const Batch *b, const u8 *table, u64 panelBytes, float *out, i32 cols, i32 stride) {
    i32 token = b->tokens[block()];
    const u8 *panel = table + u64(token / PANEL) * panelBytes;
    float *o = out + u64(block()) * u64(stride);
    for (i32 c = thread(); c * 8 < cols; c += threads()) {
        float w[8];
        unpack<T>(panel, c, token % PANEL, w);
        for (i32 i = 0; i < 8 && c * 8 + i < cols; i++) o[c * 8 + i] = w[i];
    }
}

#define EMBED(type, T)                                                                                                                       \
    KERNEL(embed_##type, 128)(const Batch *b, const u8 *table, u64 panelBytes, float *out, i32 cols, i32 stride) {                           \
        embed<T>(b, table, panelBytes, out, cols, stride);                                                                                   \
    }                                                                                                                                        \
    REGISTER(embed_##type)
EVERY_TYPE(EMBED)
