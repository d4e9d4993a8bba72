/* dlfcn.h - replaces the dynamic linker where gpu/ is compiled for the emulator: the cuBLAS
 * that it loads is emulator_cublas.cc. See cuda_runtime.h. */
#ifndef DLFCN_H
#define DLFCN_H

enum { RTLD_LOCAL = 0, RTLD_NOW = 2 };

extern "C" {
typedef struct { const char *dli_fname; } Dl_info;
/* The program itself, wherever the address is */
int emulated_dladdr(const void *, Dl_info *);
/* Set by a test: there is no cuBLAS. */
extern int cublas_missing;
void *emulated_dlopen(const char *, int);
void *emulated_dlsym(void *, const char *);
const char *emulated_dlerror(void);
}

#define dlopen emulated_dlopen
#define dlsym emulated_dlsym
#define dlerror emulated_dlerror
#define dladdr emulated_dladdr

#endif
