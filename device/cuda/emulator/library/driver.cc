// A look-alike of the CUDA driver library for machines without a GPU: the part of the driver API that device/cuda uses, on host
// memory, running the kernels of ../kernel compiled for the CPU. For tests.
//
// Streams are lazy: what is queued runs when somebody waits for it and not before, so a missing wait gives wrong results every
// time rather than now and then. So are copies from ordinary host memory, once they have read it. Fresh memory holds 0xA5, never zeros.
//
// Environment: QUIRE_EMULATOR_DEVICES (1), QUIRE_EMULATOR_MEMORY (bytes, 4 GiB), QUIRE_EMULATOR_ORDER (forward, reverse, random),
// QUIRE_EMULATOR_THREADS (1), QUIRE_EMULATOR_FAIL (NAME=CODE[@N],...: the N-th call of a function from now on, or every one,
// returns the code; codes from 700 on stay, as those of a lost device do).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "../../include/cuda.h"
#include "blocks.h"

#define API extern "C" __attribute__((visibility("default"))) CUresult

namespace {

std::recursive_mutex lock; // guards everything but running streams

long long setting(const char *name, long long otherwise) {
    const char *s = getenv(name);
    return s && *s ? atoll(s) : otherwise;
}

// planned_failure gives the code that QUIRE_EMULATOR_FAIL plans for this call, or 0.
CUresult planned_failure(const char *name) {
    static std::string seen;
    static std::map<std::string, int> calls;
    static int stuck;
    std::lock_guard<std::recursive_mutex> g(lock);
    const char *s = getenv("QUIRE_EMULATOR_FAIL");
    std::string spec = s ? s : "";
    if (spec != seen) seen = spec, calls.clear(), stuck = 0;
    if (stuck) return CUresult(stuck);
    int call = ++calls[name];
    for (size_t at = 0; at < spec.size();) {
        size_t end = spec.find(',', at);
        std::string one = spec.substr(at, end == std::string::npos ? end : end - at);
        at = end == std::string::npos ? spec.size() : end + 1;
        int code = 0, nth = 0;
        char what[64];
        if (sscanf(one.c_str(), "%63[^=]=%d@%d", what, &code, &nth) < 2 || strcmp(what, name)) continue;
        if (nth && nth != call) continue;
        if (code >= 700 && code != 801) stuck = code;
        return CUresult(code);
    }
    return CUDA_SUCCESS;
}

#define ENTER                                                                                                                              \
    if (CUresult planned = planned_failure(__func__)) return planned;

struct Memory {
    size_t bytes;
};
std::map<uintptr_t, Memory> device_memory, pinned_memory;
size_t device_used;

// inside says whether [at, at+n) lies in one piece of memory.
bool inside(const std::map<uintptr_t, Memory> &m, uintptr_t at, size_t n) {
    auto i = m.upper_bound(at);
    if (i == m.begin()) return false;
    --i;
    return at - i->first <= i->second.bytes && n <= i->second.bytes - (at - i->first);
}
bool on_device(CUdeviceptr p, size_t n) {
    std::lock_guard<std::recursive_mutex> g(lock);
    return inside(device_memory, uintptr_t(p), n);
}
bool pinned(const void *p, size_t n) {
    std::lock_guard<std::recursive_mutex> g(lock);
    return inside(pinned_memory, reinterpret_cast<uintptr_t>(p), n);
}

void *fresh(size_t n) {
    void *p = nullptr;
    if (posix_memalign(&p, 256, n ? n : 1)) return nullptr;
    memset(p, 0xA5, n);
    return p;
}

} // namespace

struct CUctx_st {
    int device;
};
struct CUmod_st {
    std::set<std::string> entries;
    std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};
struct CUfunc_st {
    const emulator::Kernel *kernel;
    std::string name;
};
struct CUstream_st {
    std::recursive_mutex running;
    std::deque<std::function<int()>> queue; // guarded by lock
    int error = 0;

    void add(std::function<int()> f) {
        std::lock_guard<std::recursive_mutex> g(lock);
        queue.push_back(std::move(f));
    }
    // drain runs what was queued, in order.
    CUresult drain() {
        std::lock_guard<std::recursive_mutex> r(running);
        for (;;) {
            std::function<int()> f;
            {
                std::lock_guard<std::recursive_mutex> g(lock);
                if (queue.empty()) break;
                f = std::move(queue.front());
                queue.pop_front();
            }
            if (int rc = f()) error = rc;
        }
        int rc = error;
        error = 0;
        return CUresult(rc);
    }
};
struct CUevent_st {
    CUstream stream = nullptr;
    double at = 0; // ms
};

namespace {
thread_local CUcontext current;
std::set<CUstream> streams; // guarded by lock

CUresult in_context() { return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT; }

double milliseconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

CUstream_st ordinary; // copies from ordinary memory that have been read and have not landed

CUresult drain_all() {
    std::set<CUstream> all;
    {
        std::lock_guard<std::recursive_mutex> g(lock);
        all = streams;
    }
    int rc = ordinary.drain();
    for (CUstream s : all)
        if (int r = s->drain()) rc = r;
    return CUresult(rc);
}

// queue_copy queues a copy, or makes it at once without a stream.
CUresult copy(void *dst, const void *src, size_t n, CUstream s) {
    if (CUresult rc = in_context()) return rc;
    if (!s) {
        CUresult rc = drain_all();
        memcpy(dst, src, n);
        return rc;
    }
    s->add([=] { memcpy(dst, src, n); return 0; });
    return CUDA_SUCCESS;
}
} // namespace

API cuInit(unsigned) {
    ENTER
    return setting("QUIRE_EMULATOR_DEVICES", 1) > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
API cuDriverGetVersion(int *v) { ENTER *v = 12020; return CUDA_SUCCESS; }
API cuGetErrorString(CUresult, const char **text) { *text = "an error of the emulator"; return CUDA_SUCCESS; }
API cuDeviceGetCount(int *n) { ENTER *n = int(setting("QUIRE_EMULATOR_DEVICES", 1)); return CUDA_SUCCESS; }
API cuDeviceGet(CUdevice *d, int ordinal) {
    ENTER
    if (ordinal < 0 || ordinal >= setting("QUIRE_EMULATOR_DEVICES", 1)) return CUDA_ERROR_INVALID_DEVICE;
    *d = ordinal;
    return CUDA_SUCCESS;
}
API cuDeviceGetName(char *name, int n, CUdevice) { ENTER snprintf(name, n, "Quire emulator"); return CUDA_SUCCESS; }
API cuDeviceTotalMem(size_t *n, CUdevice) { ENTER *n = size_t(setting("QUIRE_EMULATOR_MEMORY", 4ll << 30)); return CUDA_SUCCESS; }
API cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
    ENTER
    switch (a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = 8; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = 1; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *v = 32; break;
    default: *v = 0;
    }
    return CUDA_SUCCESS;
}

API cuCtxCreate(CUcontext *c, unsigned, CUdevice d) { ENTER *c = current = new CUctx_st{d}; return CUDA_SUCCESS; }
API cuCtxDestroy(CUcontext c) {
    ENTER
    CUresult rc = drain_all();
    if (current == c) current = nullptr;
    delete c;
    return rc;
}
API cuCtxSetCurrent(CUcontext c) { ENTER current = c; return CUDA_SUCCESS; }
API cuCtxGetCurrent(CUcontext *c) { ENTER *c = current; return CUDA_SUCCESS; }
API cuCtxSynchronize() { ENTER return drain_all(); }

API cuMemGetInfo(size_t *left, size_t *total) {
    ENTER
    std::lock_guard<std::recursive_mutex> g(lock);
    *total = size_t(setting("QUIRE_EMULATOR_MEMORY", 4ll << 30));
    *left = *total > device_used ? *total - device_used : 0;
    return CUDA_SUCCESS;
}
API cuMemAlloc(CUdeviceptr *p, size_t n) {
    ENTER
    if (CUresult rc = in_context()) return rc;
    if (n == 0) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::recursive_mutex> g(lock);
    if (n > size_t(setting("QUIRE_EMULATOR_MEMORY", 4ll << 30)) - device_used) return CUDA_ERROR_OUT_OF_MEMORY;
    void *m = fresh(n);
    if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
    device_memory[reinterpret_cast<uintptr_t>(m)] = Memory{n};
    device_used += n;
    *p = CUdeviceptr(reinterpret_cast<uintptr_t>(m));
    return CUDA_SUCCESS;
}
API cuMemFree(CUdeviceptr p) {
    ENTER
    if (CUresult rc = drain_all()) return rc;
    std::lock_guard<std::recursive_mutex> g(lock);
    auto i = device_memory.find(uintptr_t(p));
    if (i == device_memory.end()) return CUDA_ERROR_INVALID_VALUE;
    device_used -= i->second.bytes;
    device_memory.erase(i);
    free(reinterpret_cast<void *>(uintptr_t(p)));
    return CUDA_SUCCESS;
}
API cuMemHostAlloc(void **p, size_t n, unsigned) {
    ENTER
    if (CUresult rc = in_context()) return rc;
    *p = fresh(n);
    if (!*p) return CUDA_ERROR_OUT_OF_MEMORY;
    std::lock_guard<std::recursive_mutex> g(lock);
    pinned_memory[reinterpret_cast<uintptr_t>(*p)] = Memory{n};
    return CUDA_SUCCESS;
}
API cuMemFreeHost(void *p) {
    ENTER
    CUresult rc = drain_all();
    std::lock_guard<std::recursive_mutex> g(lock);
    if (!pinned_memory.erase(reinterpret_cast<uintptr_t>(p))) return CUDA_ERROR_INVALID_VALUE;
    free(p);
    return rc;
}

// A copy beside other work must come from, or go to, pinned memory: a driver would make it wait otherwise.
API cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t n, CUstream s) {
    ENTER
    if (!on_device(dst, n) || (s && !pinned(src, n))) return CUDA_ERROR_INVALID_VALUE;
    return copy(reinterpret_cast<void *>(uintptr_t(dst)), src, n, s);
}
API cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t n, CUstream s) {
    ENTER
    if (!on_device(src, n) || (s && !pinned(dst, n))) return CUDA_ERROR_INVALID_VALUE;
    return copy(dst, reinterpret_cast<void *>(uintptr_t(src)), n, s);
}
API cuMemcpyHtoD(CUdeviceptr dst, const void *src, size_t n) {
    ENTER
    if (!on_device(dst, n)) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult rc = in_context()) return rc;
    // As a driver may, this returns when the source was read; other streams do not wait for the rest.
    auto staged = std::make_shared<std::string>(static_cast<const char *>(src), n);
    ordinary.add([=] { memcpy(reinterpret_cast<void *>(uintptr_t(dst)), staged->data(), n); return 0; });
    return CUDA_SUCCESS;
}
API cuMemcpyDtoH(void *dst, CUdeviceptr src, size_t n) {
    ENTER
    if (!on_device(src, n)) return CUDA_ERROR_INVALID_VALUE;
    return copy(dst, reinterpret_cast<void *>(uintptr_t(src)), n, nullptr);
}
API cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
    ENTER
    if (!on_device(dst, n) || !on_device(src, n)) return CUDA_ERROR_INVALID_VALUE;
    return copy(reinterpret_cast<void *>(uintptr_t(dst)), reinterpret_cast<void *>(uintptr_t(src)), n, s);
}
API cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream s) {
    ENTER
    if (!s || !on_device(dst, n)) return CUDA_ERROR_INVALID_VALUE;
    s->add([=] { memset(reinterpret_cast<void *>(uintptr_t(dst)), value, n); return 0; });
    return CUDA_SUCCESS;
}

// A module is known by its PTX: the names of its entries. The code behind them is this library's own.
API cuModuleLoadData(CUmodule *m, const void *image) {
    ENTER
    if (CUresult rc = in_context()) return rc;
    const char *text = static_cast<const char *>(image);
    if (!strstr(text, ".version ") || !strstr(text, ".target ")) return CUDA_ERROR_INVALID_PTX;
    *m = new CUmod_st;
    for (const char *at = text; (at = strstr(at, ".entry ")); ) {
        at += strlen(".entry ");
        (*m)->entries.insert(std::string(at, strcspn(at, "( \t\n")));
    }
    return CUDA_SUCCESS;
}
API cuModuleUnload(CUmodule m) { ENTER CUresult rc = drain_all(); delete m; return rc; }
API cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
    ENTER
    const emulator::Kernel *k = emulator::find(name);
    if (!k || !m->entries.count(name)) return CUDA_ERROR_NOT_FOUND;
    auto &slot = m->functions[name];
    if (!slot) slot.reset(new CUfunc_st{k, name});
    *f = slot.get();
    return CUDA_SUCCESS;
}
API cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s,
                   void **params, void **) {
    ENTER
    if (CUresult rc = in_context()) return rc;
    if (!f || !s || !gx || !gy || !gz || !bx || by != 1 || bz != 1 || bx > 1024 || gy > 65535 || gz > 65535) return CUDA_ERROR_INVALID_VALUE;
    if (shared > 48 << 10) return CUDA_ERROR_INVALID_VALUE;
    auto l = std::make_shared<emulator::Launch>();
    *l = emulator::Launch{f->kernel, {int(gx), int(gy), int(gz)}, int(bx), shared, {}};
    for (int i = 0; i < f->kernel->count; i++) l->args.push_back(*static_cast<uint64_t *>(params[i]));
    s->add([l] { return emulator::run(*l); });
    return CUDA_SUCCESS;
}

API cuStreamCreate(CUstream *s, unsigned) {
    ENTER
    if (CUresult rc = in_context()) return rc;
    *s = new CUstream_st;
    std::lock_guard<std::recursive_mutex> g(lock);
    streams.insert(*s);
    return CUDA_SUCCESS;
}
API cuStreamDestroy(CUstream s) {
    ENTER
    CUresult rc = s->drain();
    {
        std::lock_guard<std::recursive_mutex> g(lock);
        streams.erase(s);
    }
    delete s;
    return rc;
}
API cuStreamSynchronize(CUstream s) { ENTER return s ? s->drain() : drain_all(); }
API cuStreamQuery(CUstream s) {
    ENTER
    std::lock_guard<std::recursive_mutex> g(lock);
    return s->queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
API cuStreamWaitEvent(CUstream s, CUevent e, unsigned) {
    ENTER
    CUstream other = e->stream;
    if (other && other != s) s->add([other] { return int(other->drain()); });
    return CUDA_SUCCESS;
}
API cuEventCreate(CUevent *e, unsigned) { ENTER *e = new CUevent_st; return CUDA_SUCCESS; }
API cuEventDestroy(CUevent e) { ENTER delete e; return CUDA_SUCCESS; }
API cuEventRecord(CUevent e, CUstream s) {
    ENTER
    e->stream = s;
    if (!s) return CUDA_ERROR_INVALID_VALUE;
    s->add([e] { e->at = milliseconds(); return 0; });
    return CUDA_SUCCESS;
}
API cuEventSynchronize(CUevent e) { ENTER return e->stream ? e->stream->drain() : CUDA_SUCCESS; }
API cuEventElapsedTime(float *ms, CUevent a, CUevent b) { ENTER *ms = float(b->at - a->at); return CUDA_SUCCESS; }
