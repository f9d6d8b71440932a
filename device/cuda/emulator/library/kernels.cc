// The kernels of ../../kernel, compiled for the CPU.
#define QUIRE_EMULATOR
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#include "../../kernel/all.cu"
