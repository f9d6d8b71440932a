// Zeroing between owners: whole pages and their tags become zero. Finding what is not: the first page that holds anything else.
//
// Shapes: pages [n] page numbers; words: 32-bit words of a page.
// Grid: (n, slices of a page) blocks of 256 threads. Shared memory: none. A thread owns words of its slice.
// Oracle: device/cpu, pool.Zero and pool.NonZero.
#include "quire.cuh"

KERNEL(zero_pages, 256)(const Pool *pool, const u32 *pages, u64 words) {
    u32 page = pages[block()];
    if (block_y() == 0 && thread() == 0) pool->tags[page] = Tag{0, 0, 0, 0, 0};
    u32 *w = reinterpret_cast<u32 *>(pool->data) + u64(page) * words;
    for (u64 i = u64(block_y()) * 256 + u64(thread()); i < words; i += u64(blocks_y()) * 256) w[i] = 0;
}
REGISTER(zero_pages)

// first[0] becomes the smallest index into pages of a page that is not zero.
KERNEL(find_nonzero, 256)(const Pool *pool, const u32 *pages, u64 words, i32 *first) {
    const u32 *w = reinterpret_cast<const u32 *>(pool->data) + u64(pages[block()]) * words;
    for (u64 i = u64(block_y()) * 256 + u64(thread()); i < words; i += u64(blocks_y()) * 256) {
        if (w[i] == 0) continue;
        lower_to(first, block());
        return;
    }
}
REGISTER(find_nonzero)
