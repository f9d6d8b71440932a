// Digest of a frame in device memory: a sum, modulo 2^64, of each word mixed with its place. It shows a copy that went wrong
// (a lost or swapped word), whatever order the threads run in; against people there are seals and signatures (kvtransfer/seal).
//
// Shapes: words [n] u32; sum [1] u64, which the caller zeroed.
// Grid: up to 256 blocks of 256 threads. Shared memory: none. A thread owns words a grid apart.
// Oracle: device/cuda, digest in digest.go.
#include "quire.cuh"

FN u64 mix(u64 z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

KERNEL(digest, 256)(const u32 *words, u64 n, u64 *sum) {
    u64 mine = 0;
    for (u64 i = u64(block()) * 256 + u64(thread()); i < n; i += u64(blocks()) * 256)
        mine += mix((u64(words[i]) | i << 32) + 0x9e3779b97f4a7c15ull * (i + 1));
    if (mine) __atomic_fetch_add(sum, mine, __ATOMIC_RELAXED);
}
REGISTER(digest)
