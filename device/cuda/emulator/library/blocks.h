// What the emulator's driver (driver.cc) asks of its scheduler (blocks.cc).
#pragma once
#include <vector>

typedef int i32; // as kernel/quire.cuh has it, for shim.h
#include "shim.h"

namespace emulator {

// The error of a kernel in which some threads wait at a barrier that others never reach: CUDA_ERROR_LAUNCH_FAILED.
const int DIVERGED = 719;

struct Kernel {
    Run run;
    int count; // of parameters
};

// find gives a kernel by name, or null.
const Kernel *find(const char *name);

struct Launch {
    const Kernel *kernel;
    int grid[3], threads;
    size_t shared; // bytes
    std::vector<uint64_t> args;
};

// run runs all blocks and returns 0 or DIVERGED.
int run(const Launch &l);

} // namespace emulator
