// The scheduler of the emulator: blocks one after another or on several operating system threads, their CUDA threads as fibers.
#include "blocks.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define UNPOISON(p, n)
#endif

namespace emulator {

thread_local Now now;

namespace {

std::map<std::string, Kernel> &kernels() {
    static std::map<std::string, Kernel> all;
    return all;
}

// The kernel that fibers of this operating system thread enter.
thread_local const Kernel *entered;
thread_local const uint64_t *arguments;

extern "C" void emulator_switch(void **save, void *to);
asm(R"(.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, @function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch, .-emulator_switch
)");

void enter() {
    entered->run(arguments);
    wait_at(ENDED);
    __builtin_trap();
}

const size_t STACK = 32 << 10; // bytes of a fiber

// Prepares a fiber to begin in enter: six registers that emulator_switch takes off the stack, then its return address.
void prepare(Fiber *f, char *stack) {
    UNPOISON(stack, STACK);
    void **sp = reinterpret_cast<void **>((reinterpret_cast<uintptr_t>(stack) + STACK) & ~uintptr_t(15));
    *--sp = nullptr;
    *--sp = reinterpret_cast<void *>(enter);
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    f->stack = sp;
    f->wait = RUN;
}

void resume(Fiber *f) {
    now.fiber = f;
    f->wait = RUN;
    emulator_switch(&now.scheduler, f->stack);
}

// Order is the order in which threads run between two barriers: a kernel that lacks one gives other results in some order.
struct Order {
    enum { FORWARD, REVERSE, RANDOM } kind = FORWARD;
    uint64_t state = 88172645463325252ull;

    Order() {
        const char *s = getenv("QUIRE_EMULATOR_ORDER");
        if (s && !strcmp(s, "reverse")) kind = REVERSE;
        if (s && !strcmp(s, "random")) kind = RANDOM;
    }
    uint64_t next() {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return state;
    }
    void shuffle(std::vector<int> &v) {
        for (size_t i = 0; i < v.size(); i++) v[i] = kind == REVERSE ? int(v.size() - 1 - i) : int(i);
        if (kind != RANDOM) return;
        for (size_t i = v.size(); i > 1; i--) std::swap(v[i - 1], v[next() % i]);
    }
};

// Worker runs blocks on one operating system thread.
struct Worker {
    std::vector<char> stacks;
    std::vector<Fiber> fibers;
    std::vector<unsigned char> shared;
    std::vector<int> warps, lanes;
    Order order;

    // run_warp runs a warp's threads until each has ended or waits at a barrier of the block. False: some have ended or wait for
    // the block while others wait for the warp.
    bool run_warp(int from, int to) {
        for (;;) {
            order.shuffle(lanes);
            for (int lane : lanes)
                if (from + lane < to && fibers[from + lane].wait == RUN) resume(&fibers[from + lane]);
            int waiting = 0, n = to - from;
            for (int i = from; i < to; i++) waiting += fibers[i].wait == AT_SHUFFLE;
            if (waiting == 0) return true;
            if (waiting != n) return false;
            for (int i = from; i < to; i++) fibers[i].wait = RUN;
        }
    }

    int run_block(int n) {
        for (int i = 0; i < n; i++) {
            fibers[i].thread = i;
            prepare(&fibers[i], &stacks[size_t(i) * STACK]);
        }
        warps.resize((n + 31) / 32);
        for (;;) {
            order.shuffle(warps);
            for (int w : warps)
                if (!run_warp(w * 32, w * 32 + 32 < n ? w * 32 + 32 : n)) return DIVERGED;
            int waiting = 0;
            for (int i = 0; i < n; i++) waiting += fibers[i].wait == AT_BARRIER;
            if (waiting == 0) return 0;
            if (waiting != n) return DIVERGED;
            for (int i = 0; i < n; i++) fibers[i].wait = RUN;
        }
    }

    int run(const Launch &l, std::atomic<unsigned> &next) {
        int n = l.threads;
        stacks.resize(size_t(n) * STACK);
        fibers.resize(n);
        lanes.resize(32);
        shared.resize(l.shared + 16);
        now.shared = shared.data() + (16 - reinterpret_cast<uintptr_t>(shared.data()) % 16) % 16;
        now.threads = n;
        entered = l.kernel;
        arguments = l.args.data();
        for (int i = 0; i < 3; i++) now.blocks[i] = l.grid[i];
        unsigned all = unsigned(l.grid[0]) * l.grid[1] * l.grid[2];
        for (unsigned b; (b = next++) < all;) {
            now.block[0] = b % l.grid[0], now.block[1] = b / l.grid[0] % l.grid[1], now.block[2] = b / l.grid[0] / l.grid[1];
            memset(now.shared, 0xCD, l.shared); // what was not written must not be read
            if (int rc = run_block(n)) return rc;
        }
        return 0;
    }
};

} // namespace

void wait_at(Wait w) {
    now.fiber->wait = w;
    emulator_switch(&now.fiber->stack, now.scheduler);
}

Entry::Entry(const char *name, Run run, int count) { kernels()[name] = Kernel{run, count}; }

const Kernel *find(const char *name) {
    auto i = kernels().find(name);
    return i == kernels().end() ? nullptr : &i->second;
}

int run(const Launch &l) {
    static thread_local Worker mine;
    std::atomic<unsigned> next{0};
    const char *s = getenv("QUIRE_EMULATOR_THREADS");
    int helpers = s ? atoi(s) - 1 : 0;
    std::atomic<int> rc{0};
    std::vector<std::thread> others;
    for (int i = 0; i < helpers; i++)
        others.emplace_back([&] {
            Worker w;
            if (int r = w.run(l, next)) rc = r;
        });
    mine.order = Order();
    if (int r = mine.run(l, next)) rc = r;
    for (auto &t : others) t.join();
    return rc;
}

} // namespace emulator
