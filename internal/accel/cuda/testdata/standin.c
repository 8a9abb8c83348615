// A stand-in for the library of the CUDA driver, for tests on machines without one. Its functions have
// the prototypes of cuda.h, and are as strict: a thread needs a context, a handle has to be one, memory
// has to be there. Its devices' memory is the host's, and its streams do everything at once.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct object *CUcontext, *CUstream, *CUevent;

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };
enum { DEVICES = 2, LIMIT = 64 << 20, OBJECTS = 4096, DEPTH = 8 };
enum { CONTEXT = 1, STREAM, EVENT };
enum { HOST = 1, DEVICE = 2 };

struct object { int kind, device; };
struct piece { uint64_t at; size_t n; int kind, device, managed; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects[OBJECTS];
static struct piece pieces[OBJECTS];
static struct object *primary[DEVICES];
static size_t used[DEVICES];
static int initialized;
static __thread struct object *stack[DEPTH];
static __thread int depth;

// Tests change these: what cuInit returns, the version, how many devices there are, and what every call
// with a context returns.
int standin_init = OK, standin_version = 12040, standin_count = DEVICES, standin_broken = OK;
// Tests read these: calls of cuInit, of cuCtxPushCurrent, and pushes that were not popped.
int standin_inits, standin_pushes, standin_open;
// Whether cuInit and the first context start a thread, as drivers do, and which these are.
int standin_threaded, standin_thread[2];

#define LOCKED(body) do { pthread_mutex_lock(&lock); CUresult r_ = OK; body; pthread_mutex_unlock(&lock); return r_; } while (0)
#define NEEDS_CONTEXT do { if (!initialized) return NOT_INITIALIZED; if (depth == 0) return INVALID_CONTEXT; if (standin_broken) return standin_broken; } while (0)

static int current(void) { return stack[depth - 1]->device; }

static struct object *make(int kind, int device) {
	for (int i = 0; i < OBJECTS; i++)
		if (!objects[i]) {
			struct object *o = calloc(1, sizeof *o);
			o->kind = kind, o->device = device;
			return objects[i] = o;
		}
	return NULL;
}

static int is(struct object *o, int kind) {
	for (int i = 0; i < OBJECTS; i++)
		if (o && objects[i] == o) return o->kind == kind;
	return 0;
}

static CUresult unmake(struct object *o, int kind) {
	for (int i = 0; i < OBJECTS; i++)
		if (o && objects[i] == o && o->kind == kind) {
			objects[i] = NULL;
			free(o);
			return OK;
		}
	return INVALID_HANDLE;
}

static struct piece *find(uint64_t a) {
	for (int i = 0; i < OBJECTS; i++)
		if (pieces[i].n && a >= pieces[i].at && a - pieces[i].at < pieces[i].n) return &pieces[i];
	return NULL;
}

static struct piece *add(size_t n, int kind, int device, int managed) {
	void *p = NULL;
	for (int i = 0; i < OBJECTS; i++)
		if (!pieces[i].n) {
			if (posix_memalign(&p, 512, n)) return NULL;
			pieces[i] = (struct piece){(uint64_t)(uintptr_t)p, n, kind, device, managed};
			return &pieces[i];
		}
	return NULL;
}

static int holds(uint64_t a, size_t n, int kind) {
	struct piece *p = find(a);
	return p && p->kind == kind && n <= p->n - (a - p->at);
}

static void *thread(void *id) {
	__atomic_store_n((int *)id, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	for (;;) pause();
	return NULL;
}

static void start_thread(int *id) {
	pthread_t t;
	if (!standin_threaded || *id || pthread_create(&t, NULL, thread, id)) return;
	pthread_detach(t);
	while (!__atomic_load_n(id, __ATOMIC_SEQ_CST)) usleep(100);
}

CUresult cuInit(unsigned int flags) {
	standin_inits++;
	start_thread(&standin_thread[0]);
	if (flags) return INVALID_VALUE;
	initialized = standin_init == OK;
	return standin_init;
}

CUresult cuDriverGetVersion(int *version) { *version = standin_version; return OK; }

CUresult cuGetErrorName(CUresult e, const char **text) {
	*text = e == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : e == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : e == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : NULL;
	return *text ? OK : INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult e, const char **text) {
	*text = e == OUT_OF_MEMORY ? "out of memory" : e == NO_DEVICE ? "no CUDA-capable device is detected" : e == 700 ? "an illegal memory access was encountered" : NULL;
	return *text ? OK : INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count) {
	if (!initialized) return NOT_INITIALIZED;
	*count = standin_count;
	return OK;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
	if (ordinal < 0 || ordinal >= standin_count) return INVALID_DEVICE;
	*device = ordinal;
	return OK;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice device) {
	if (device < 0 || device >= standin_count) return INVALID_DEVICE;
	strncpy(name, "Stand-in", len);
	return OK;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
	if (!initialized) return NOT_INITIALIZED;
	if (device < 0 || device >= standin_count) return INVALID_DEVICE;
	start_thread(&standin_thread[1]);
	LOCKED(if (!primary[device]) primary[device] = make(CONTEXT, device); *context = primary[device]);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
	if (!initialized) return NOT_INITIALIZED;
	*context = depth ? stack[depth - 1] : NULL;
	return OK;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
	LOCKED(if (!is(context, CONTEXT) || depth == DEPTH) r_ = INVALID_CONTEXT; else { stack[depth++] = context; standin_pushes++; standin_open++; });
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
	LOCKED(if (depth == 0) r_ = INVALID_CONTEXT; else { *context = stack[--depth]; standin_open--; });
}

CUresult cuCtxSynchronize(void) { NEEDS_CONTEXT; return OK; }

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
	NEEDS_CONTEXT;
	LOCKED(*total = LIMIT; *free = LIMIT - used[current()]);
}

static CUresult alloc(CUdeviceptr *a, size_t n, int managed) {
	NEEDS_CONTEXT;
	if (n == 0) return INVALID_VALUE;
	pthread_mutex_lock(&lock);
	struct piece *p = n > LIMIT - used[current()] ? NULL : add(n, DEVICE, current(), managed);
	if (p) used[current()] += n, *a = p->at;
	pthread_mutex_unlock(&lock);
	return p ? OK : OUT_OF_MEMORY;
}

CUresult cuMemAlloc_v2(CUdeviceptr *a, size_t n) { return alloc(a, n, 0); }
CUresult cuMemAllocManaged(CUdeviceptr *a, size_t n, unsigned int flags) { (void)flags; return alloc(a, n, 1); }

static CUresult give_back(uint64_t a, int kind) {
	NEEDS_CONTEXT;
	pthread_mutex_lock(&lock);
	struct piece *p = find(a);
	CUresult r = p && p->at == a && p->kind == kind ? OK : INVALID_VALUE;
	if (r == OK) {
		if (kind == DEVICE) used[p->device] -= p->n;
		p->n = 0;
		free((void *)(uintptr_t)a);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult cuMemFree_v2(CUdeviceptr a) { return give_back(a, DEVICE); }

CUresult cuMemHostAlloc(void **p, size_t n, unsigned int flags) {
	NEEDS_CONTEXT;
	if (n == 0 || n > LIMIT || flags != 1) return INVALID_VALUE;
	LOCKED(struct piece *q = add(n, HOST, current(), 0); if (q) *p = (void *)(uintptr_t)q->at; else r_ = OUT_OF_MEMORY);
}

CUresult cuMemFreeHost(void *p) { return give_back((uint64_t)(uintptr_t)p, HOST); }

CUresult cuPointerGetAttributes(unsigned int n, int *attributes, void **data, CUdeviceptr a) {
	NEEDS_CONTEXT;
	pthread_mutex_lock(&lock);
	struct piece none = {0}, *p = find(a);
	if (!p) p = &none;
	for (unsigned int i = 0; i < n; i++)
		switch (attributes[i]) {
		case 2: *(unsigned int *)data[i] = p->kind; break;
		case 8: *(unsigned char *)data[i] = p->managed; break;
		case 9: *(int *)data[i] = p->n ? p->device : -2; break;
		case 11: *(CUdeviceptr *)data[i] = p->at; break;
		case 12: *(size_t *)data[i] = p->n; break;
		default: pthread_mutex_unlock(&lock); return INVALID_VALUE;
		}
	pthread_mutex_unlock(&lock);
	return OK;
}

static int stream(CUstream s) { return s == NULL || (is(s, STREAM) && s->device == current()); }

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s) {
	NEEDS_CONTEXT;
	LOCKED(if (!stream(s)) r_ = INVALID_HANDLE; else if (!holds(src, n, DEVICE)) r_ = INVALID_VALUE; else memcpy(dst, (void *)(uintptr_t)src, n));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s) {
	NEEDS_CONTEXT;
	LOCKED(if (!stream(s)) r_ = INVALID_HANDLE; else if (!holds(dst, n, DEVICE)) r_ = INVALID_VALUE; else memcpy((void *)(uintptr_t)dst, src, n));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s) {
	NEEDS_CONTEXT;
	LOCKED(if (!stream(s)) r_ = INVALID_HANDLE; else if (!holds(dst, n, DEVICE) || !holds(src, n, DEVICE)) r_ = INVALID_VALUE;
		else memcpy((void *)(uintptr_t)dst, (void *)(uintptr_t)src, n));
}

CUresult cuStreamCreate(CUstream *s, unsigned int flags) {
	NEEDS_CONTEXT;
	if (flags != 1) return INVALID_VALUE;
	LOCKED(*s = make(STREAM, current()); if (!*s) r_ = OUT_OF_MEMORY);
}

CUresult cuStreamDestroy_v2(CUstream s) { NEEDS_CONTEXT; LOCKED(r_ = unmake(s, STREAM)); }
CUresult cuStreamSynchronize(CUstream s) { NEEDS_CONTEXT; LOCKED(if (!stream(s)) r_ = INVALID_HANDLE); }

CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned int flags) {
	NEEDS_CONTEXT;
	LOCKED(if (flags) r_ = INVALID_VALUE; else if (!stream(s) || !is(e, EVENT)) r_ = INVALID_HANDLE);
}

CUresult cuEventCreate(CUevent *e, unsigned int flags) {
	NEEDS_CONTEXT;
	if (flags != 2) return INVALID_VALUE;
	LOCKED(*e = make(EVENT, current()); if (!*e) r_ = OUT_OF_MEMORY);
}

CUresult cuEventDestroy_v2(CUevent e) { NEEDS_CONTEXT; LOCKED(r_ = unmake(e, EVENT)); }
CUresult cuEventRecord(CUevent e, CUstream s) { NEEDS_CONTEXT; LOCKED(if (!stream(s) || !is(e, EVENT) || e->device != current()) r_ = INVALID_HANDLE); }
CUresult cuEventQuery(CUevent e) { NEEDS_CONTEXT; LOCKED(if (!is(e, EVENT)) r_ = INVALID_HANDLE); }
CUresult cuEventSynchronize(CUevent e) { NEEDS_CONTEXT; LOCKED(if (!is(e, EVENT)) r_ = INVALID_HANDLE); }

// standin_left returns how many objects and pieces of memory there are, but for contexts.
int standin_left(void) {
	int n = 0;
	for (int i = 0; i < OBJECTS; i++) n += (objects[i] && objects[i]->kind != CONTEXT) + (pieces[i].n != 0);
	return n;
}
