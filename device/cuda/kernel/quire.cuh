// What all kernels share: the few words of CUDA C that they are written in, for two compilers, numbers, and the structures that
// Go fills in (device/cuda/records.go).
//
// For a GPU, clang compiles all.cu to PTX without any file of NVIDIA's. For the emulator g++ compiles the same sources, and
// emulator/library/shim.h stands in for threads, barriers and shared memory. Both run with contraction off: a * b + c rounds twice and
// fma_(a, b, c) once, whoever compiles it. Division and square root are correctly rounded and exp_ is a polynomial, so the
// emulator's bits are a GPU's.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef float f32x4 __attribute__((vector_size(16)));
typedef u32 u32x4 __attribute__((vector_size(16)));

#define WARP 32

#ifdef QUIRE_EMULATOR
#include "../emulator/library/shim.h"
#else
#define FN static __attribute__((device)) inline __attribute__((always_inline))
#define FN_OF __attribute__((device)) inline __attribute__((always_inline)) // a template's own version for one type
#define SHARED static __attribute__((device)) __attribute__((shared))
// A kernel of at most so many threads in a block. Every parameter takes 8 bytes at most.
#define KERNEL(name, threads) extern "C" __attribute__((global)) __attribute__((launch_bounds(threads))) void name
#define REGISTER(name) // only the emulator keeps a list
extern __attribute__((device)) __attribute__((shared)) __attribute__((aligned(16))) u8 dynamic_shared[];
#define SHARED_DYNAMIC dynamic_shared
FN i32 thread() { return i32(__nvvm_read_ptx_sreg_tid_x()); }   // in its block
FN i32 threads() { return i32(__nvvm_read_ptx_sreg_ntid_x()); } // of a block
FN i32 block() { return i32(__nvvm_read_ptx_sreg_ctaid_x()); }
FN i32 block_y() { return i32(__nvvm_read_ptx_sreg_ctaid_y()); }
FN i32 blocks() { return i32(__nvvm_read_ptx_sreg_nctaid_x()); }
FN i32 blocks_y() { return i32(__nvvm_read_ptx_sreg_nctaid_y()); }
FN void barrier() { __syncthreads(); }
// The value of the lane whose number differs in these bits. All lanes of the warp take part.
FN float shuffle_xor(float v, i32 bits) { return __nvvm_shfl_sync_bfly_f32(0xffffffffu, v, bits, 31); }
FN void lower_to(i32 *p, i32 v) { __atomic_fetch_min(p, v, __ATOMIC_RELAXED); } // atomically
#endif

FN float fma_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
FN float max_(float a, float b) { return a > b ? a : b; }
FN i32 min_(i32 a, i32 b) { return a < b ? a : b; }
FN i32 max_(i32 a, i32 b) { return a > b ? a : b; }
FN u32 bits(float f) { return __builtin_bit_cast(u32, f); }
FN float from_bits(u32 b) { return __builtin_bit_cast(float, b); }

FN float from_half(u16 h) { return float(__builtin_bit_cast(_Float16, h)); }
FN float from_bf16(u16 h) { return from_bits(u32(h) << 16); }

// The nearest half, ties to even; what is too large becomes the largest finite one, NaN stays NaN (device.ToF16).
FN u16 to_half(float f) {
    u32 b = bits(f), sign = b >> 16 & 0x8000, abs = b & 0x7fffffff;
    if (abs > 0x7f800000) return u16(sign | 0x7e00);
    if (abs >= 0x477fe000) return u16(sign | 0x7bff);
    return __builtin_bit_cast(u16, _Float16(f));
}

// e to the x within 2 units in the last place: x = n ln 2 + f, a polynomial in f, times 2 to the n. 0 below -87.33654.
FN float exp_(float x) {
    if (!(x >= -87.33654f)) return x != x ? x : 0.0f;
    x = x < 88.0f ? x : 88.0f;
    float n = __builtin_rintf(x * 1.44269504f);
    float f = fma_(n, -0.693359375f, x);
    f = fma_(n, 2.12194440e-4f, f);
    float p = 1.9875691500e-4f;
    p = fma_(p, f, 1.3981999507e-3f);
    p = fma_(p, f, 8.3334519073e-3f);
    p = fma_(p, f, 4.1665795894e-2f);
    p = fma_(p, f, 1.6666665459e-1f);
    p = fma_(p, f, 5.0000001201e-1f);
    float y = fma_(p, f * f, f) + 1.0f;
    return y * from_bits(u32(i32(n) + 127) << 23);
}

// Who a page belongs to, kept beside the page. All zero: nobody.
struct Tag {
    u64 a, b;    // the hand-off
    u64 gen;     // the page's generation
    u32 attempt; // of the hand-off
    u32 unused;
};
FN bool same(const Tag &x, const Tag &y) { return x.a == y.a && x.b == y.b && x.gen == y.gen && x.attempt == y.attempt; }

// What a kernel found wrong first; code 0: nothing.
enum { FAULT_READ = 1, FAULT_WRITE = 2 };
struct Fault {
    u32 code, page;
    i32 seq, slot; // of the batch; index into the sequence's pages
    Tag found, wanted;
};

// How keys and values are stored, numbered as device.Type. A head of Q8_0 is blocks of 32 numbers: f16 scale, 32 int8.
enum { KV_F32 = 1, KV_F16 = 2, KV_Q8_0 = 4 };

// A pool of pages: [pages][layers][2: K, V][kvHeads][pageSize] heads of headBytes.
struct Pool {
    u8 *data;
    Tag *tags; // [pages]
    i32 pages, pageSize, layers, kvHeads, headDim, headBytes;
    i32 type;  // KV_F32, ...
    i32 check; // 0 only to measure what the check of tags costs
};

// A page of a sequence and the generation under which it holds the sequence's rows.
struct Slot {
    u64 gen;
    u32 page, unused;
};

// A run of rows of one sequence in a batch.
struct Seq {
    u64 a, b; // the owner's hand-off
    u32 attempt;
    i32 row, rows, from; // rows of the batch; position of the first
    i32 slots;           // its pages are Batch.slots[slots...]
    i32 granted;         // 1: keys and values go to its pages, 0: to scratch
    i64 scratch;         // byte offset of its scratch: [layers][rows][2][kvHeads] heads
};

// A step's batch, made by Go and copied to the device in one piece.
struct Batch {
    const i32 *tokens; // [rows]
    const i32 *seqOf;  // [rows]
    const Seq *seqs;
    const Slot *slots;
    u8 *scratch;
    Fault *fault;
};

FN Tag wanted_tag(const Seq &s, const Slot &slot) { return Tag{s.a, s.b, slot.gen, s.attempt, 0}; }

// Notes the first fault of a step.
FN void raise(Fault *f, u32 code, i32 seq, i32 slot, u32 page, const Tag &found, const Tag &wanted) {
    u32 none = 0;
    if (!__atomic_compare_exchange_n(&f->code, &none, code, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
    f->page = page;
    f->seq = seq;
    f->slot = slot;
    f->found = found;
    f->wanted = wanted;
}
FN bool faulted(const Fault *f) { return __atomic_load_n(&f->code, __ATOMIC_RELAXED) != 0; }

// Where one head of one layer of a page keeps its keys (part 0) or values (part 1): [pageSize] heads.
FN u8 *head_of(const Pool &p, u32 page, i32 layer, i32 part, i32 head) {
    u64 at = ((u64(page) * u64(p.layers) + u64(layer)) * 2 + u64(part)) * u64(p.kvHeads) + u64(head);
    return p.data + at * u64(p.pageSize) * u64(p.headBytes);
}
