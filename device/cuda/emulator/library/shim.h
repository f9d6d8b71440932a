// CUDA C for a CPU: what kernel/quire.cuh asks of the language. A block runs on one operating system thread; each of its CUDA
// threads is a fiber, which runs until it waits at a barrier. blocks.cc schedules them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#define FN static inline __attribute__((always_inline))
#define FN_OF inline __attribute__((always_inline))
#define SHARED static thread_local
#define SHARED_DYNAMIC (::emulator::now.shared)
#define KERNEL(name, threads) extern "C" void name
#define REGISTER(name) static ::emulator::Entry entry_##name(#name, ::emulator::Call<decltype(&name), &name>::run, ::emulator::Call<decltype(&name), &name>::count);

namespace emulator {

enum Wait { RUN, AT_BARRIER, AT_SHUFFLE, ENDED };

struct Fiber {
    void *stack; // saved stack pointer
    int thread;
    Wait wait;
};

// Now is the block that this operating system thread runs.
struct Now {
    int block[3], blocks[3], threads;
    Fiber *fiber;
    void *scheduler; // saved stack pointer
    unsigned char *shared;
    float lanes[1024]; // what each thread gives to a shuffle
};
extern thread_local Now now;

void wait_at(Wait w);

// Entry is a kernel under its name; run calls it with arguments that lie 8 bytes apart.
typedef void (*Run)(const uint64_t *args);
struct Entry {
    Entry(const char *name, Run run, int count);
};

template <class F, F f> struct Call;
template <class... A, void (*f)(A...)> struct Call<void (*)(A...), f> {
    static constexpr int count = sizeof...(A);
    template <class T> static T at(const uint64_t *arg) {
        static_assert(sizeof(T) <= 8, "a kernel's parameter is larger than 8 bytes");
        T v;
        memcpy(&v, arg, sizeof v);
        return v;
    }
    template <size_t... I> static void spread(const uint64_t *args, std::index_sequence<I...>) { f(at<A>(args + I)...); }
    static void run(const uint64_t *args) { spread(args, std::index_sequence_for<A...>()); }
};

} // namespace emulator

FN i32 thread() { return emulator::now.fiber->thread; }
FN i32 threads() { return emulator::now.threads; }
FN i32 block() { return emulator::now.block[0]; }
FN i32 block_y() { return emulator::now.block[1]; }
FN i32 blocks() { return emulator::now.blocks[0]; }
FN i32 blocks_y() { return emulator::now.blocks[1]; }
FN void barrier() { emulator::wait_at(emulator::AT_BARRIER); }

// Two waits: all lanes have given before one takes, all have taken before one gives again.
FN float shuffle_xor(float v, i32 bits) {
    i32 t = thread();
    emulator::now.lanes[t] = v;
    emulator::wait_at(emulator::AT_SHUFFLE);
    float got = emulator::now.lanes[(t & ~31) | ((t ^ bits) & 31)];
    emulator::wait_at(emulator::AT_SHUFFLE);
    return got;
}

FN void lower_to(i32 *p, i32 v) {
    i32 old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
