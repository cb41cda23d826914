/* A driver without a device: enough of libcuda for tests of what graphdnn says to the driver and makes of its answers.

   The environment decides: STUB_DEVICES (1), STUB_CAPABILITY (90), STUB_NAME, STUB_SMS (132), STUB_VERSION (13000),
   STUB_INIT and STUB_LAUNCH (the code that cuInit and launches answer).
   stub_launch gives what the last launch was, stub_calls how often a function of interest was called. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned attribute_count;
} Config;

typedef struct {
    uint64_t grid[3], block[3], shared, stream, attribute_count, function, params, first, flags;
} Launch;

static Launch last;
static int modules, functions_loaded, largest_shared;
static void *current;

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

void stub_launch(Launch *out) { *out = last; }
void stub_calls(int *out) { out[0] = modules; out[1] = functions_loaded; out[2] = largest_shared; }

int cuInit(unsigned flags) { return number("STUB_INIT", 0); }
int cuDriverGetVersion(int *out) { *out = number("STUB_VERSION", 13000); return 0; }
int cuDeviceGetCount(int *out) { *out = number("STUB_DEVICES", 1); return 0; }
int cuDeviceGet(int *out, int ordinal) { *out = ordinal; return ordinal < number("STUB_DEVICES", 1) ? 0 : 101; }
int cuDeviceTotalMem(size_t *out, int device) { *out = (size_t)141 << 30; return 0; }
int cuDeviceTotalMem_v2(size_t *out, int device) { return cuDeviceTotalMem(out, device); } /* as ctypes asks for it */
int cuDeviceGetName(char *out, int size, int device) {
    const char *name = getenv("STUB_NAME");
    snprintf(out, size, "%s", name ? name : "NVIDIA H200");
    return 0;
}
int cuDeviceGetAttribute(int *out, int attribute, int device) {
    switch (attribute) {
    case 13: *out = 1980000; return 0;
    case 16: *out = number("STUB_SMS", 132); return 0;
    case 36: *out = 3201000; return 0;
    case 37: *out = 6144; return 0;
    case 38: *out = 60 << 20; return 0;
    case 75: *out = number("STUB_CAPABILITY", 90) / 10; return 0;
    case 76: *out = number("STUB_CAPABILITY", 90) % 10; return 0;
    case 81: *out = 233472; return 0;
    }
    return 1;
}

int cuDevicePrimaryCtxRetain(void **out, int device) { *out = (void *)(uintptr_t)(0x1000 + device); return 0; }
int cuCtxSetCurrent(void *context) { current = context; return 0; }
int cuCtxGetCurrent(void **out) { *out = current; return 0; }
int cuCtxGetDevice(int *out) {
    if (!current) return 201;
    *out = (int)((uintptr_t)current - 0x1000);
    return 0;
}

int cuModuleLoadData(void **out, const void *image) {
    if (memcmp(image, "\177ELF", 4)) return 200;
    *out = (void *)(uintptr_t)(0x2000 + modules++);
    return 0;
}
int cuModuleGetFunction(void **out, void *module, const char *name) {
    if (!strcmp(name, "absent")) return 500;
    *out = (void *)((uintptr_t)module + 0x1000);
    return 0;
}
int cuFuncGetAttribute(int *out, int attribute, void *function) { functions_loaded++; *out = 32; return 0; }
int cuFuncSetAttribute(void *function, int attribute, int value) {
    if (attribute == 8) largest_shared = value;
    return value > 232448;
}

int cuLaunchKernelEx(const Config *config, void *function, void **params, void **extra) {
    for (int i = 0; i < 3; i++) { last.grid[i] = config->grid[i]; last.block[i] = config->block[i]; }
    last.shared = config->shared;
    last.stream = (uintptr_t)config->stream;
    last.attribute_count = config->attribute_count;
    last.flags = 0;
    for (unsigned i = 0; i < config->attribute_count; i++) { /* an id, four bytes of padding, 64 of a value */
        const unsigned *attribute = (const unsigned *)config->attributes + 18 * i;
        if (attribute[2] == 1) last.flags |= 1u << attribute[0];
    }
    last.function = (uintptr_t)function;
    last.params = (uintptr_t)params[0];
    memcpy(&last.first, params[0], 8);
    return number("STUB_LAUNCH", 0);
}

int cuStreamSynchronize(void *stream) { return number("STUB_LAUNCH", 0); }
int cuStreamIsCapturing(void *stream, int *out) { *out = (uintptr_t)stream == 7; return 0; }
int cuMemGetInfo(size_t *left, size_t *all) { *left = (size_t)100 << 30; *all = (size_t)141 << 30; return 0; }
int cuPointerGetAttribute(void *out, int attribute, uint64_t address) {
    if (address < 0x10000) return 1;
    if (address == 0x77777777) return 700;
    *(int *)out = address >= (uint64_t)1 << 41; /* of two devices, the second one's */
    return 0;
}

int cuGetErrorName(int code, const char **out) {
    switch (code) {
    case 0: *out = "CUDA_SUCCESS"; return 0;
    case 1: *out = "CUDA_ERROR_INVALID_VALUE"; return 0;
    case 2: *out = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
    case 100: *out = "CUDA_ERROR_NO_DEVICE"; return 0;
    case 200: *out = "CUDA_ERROR_INVALID_IMAGE"; return 0;
    case 500: *out = "CUDA_ERROR_NOT_FOUND"; return 0;
    case 700: *out = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0;
    case 999: *out = "CUDA_ERROR_UNKNOWN"; return 0;
    }
    return 1;
}
int cuGetErrorString(int code, const char **out) {
    if (code == 700) { *out = "an illegal memory access was encountered"; return 0; }
    *out = "described by the stub";
    return code == 12345;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *found) {
    char versioned[128];
    *out = dlsym(RTLD_DEFAULT, name);
    if (!*out) {
        Dl_info own;
        if (dladdr((void *)cuInit, &own)) {
            void *self = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
            snprintf(versioned, sizeof versioned, "%s", name);
            *out = self ? dlsym(self, versioned) : 0;
        }
    }
    if (found) *found = *out ? 0 : 1;
    return *out ? 0 : 500;
}
