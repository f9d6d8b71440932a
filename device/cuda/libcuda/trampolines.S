// One jump for each function of the driver library, through its slot of driver.c. Arguments stay where the caller put them.
#if defined(__x86_64__)
#define SYMBOL(name) .globl name; .type name, @function; name: jmp *quire_slot_##name(%rip);
#elif defined(__aarch64__)
#define SYMBOL(name) .globl name; .type name, %function; name: adrp x16, quire_slot_##name; ldr x16, [x16, :lo12:quire_slot_##name]; br x16;
#else
#error "CUDA is supported on linux/amd64 and linux/arm64"
#endif
.text
#include "symbols.h"
#if defined(__x86_64__)
.section .note.GNU-stack, "", @progbits
#else
.section .note.GNU-stack, "", %progbits
#endif
