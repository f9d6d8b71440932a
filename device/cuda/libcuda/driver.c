// The CUDA driver library, opened when asked for and not before: a program that links this file has no dependency on it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"

// Every function that the bindings call jumps through a slot (trampolines.S). Until a library is open they report that there
// is no device (100); a function that the library lacks reports that it is not supported (801).
static int no_device(void) { return 100; }
static int unsupported(void) { return 801; }

#define SYMBOL(name) void *quire_slot_##name = (void *)no_device;
#include "symbols.h"
#undef SYMBOL

static struct {
    const char *name;
    void **slot;
} table[] = {
#define SYMBOL(name) {#name, &quire_slot_##name},
#include "symbols.h"
#undef SYMBOL
};

static int (*real_init)(unsigned);
static int (*real_count)(int *);

int quire_libcuda_open(const char *path, char *why, int size) {
    if (real_count) return 0;
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *e = dlerror();
        snprintf(why, size, "%s", e ? e : "the library cannot be opened");
        return -1;
    }
    real_init = (int (*)(unsigned))dlsym(lib, "cuInit");
    void *count = dlsym(lib, "cuDeviceGetCount");
    if (!real_init || !count) {
        snprintf(why, size, "%s is no CUDA driver library", path);
        dlclose(lib);
        return -1;
    }
    int rc = real_init(0);
    if (rc) {
        dlclose(lib);
        return rc;
    }
    for (unsigned i = 0; i < sizeof table / sizeof table[0]; i++) {
        void *f = dlsym(lib, table[i].name);
        *table[i].slot = f ? f : (void *)unsupported;
    }
    real_count = (int (*)(int *))count;
    return 0;
}

// cuInit never fails: package cu ends the process in its own initialisation if it does, and that runs before anybody chose a
// device. The real one runs when the library is opened.
int cuInit(unsigned flags) {
    (void)flags;
    return 0;
}

int cuDeviceGetCount(int *n) {
    if (real_count) return real_count(n);
    *n = 0;
    return 0;
}
