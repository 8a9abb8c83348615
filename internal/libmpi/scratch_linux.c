// The scratch area of guarded receives: some pages for a short receive, followed by enough reserved
// address space to hold what a faulty library writes past it. It takes no memory until it is written.
#define _GNU_SOURCE
#include "shim.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
static const size_t reach = (size_t)1 << 36; // 64 GiB, followed by a page that cannot be written

static uint8_t *area;         // NULL before it is made, MAP_FAILED if that failed
static atomic_int taken;      // by a receive
static __thread int owner;

static void make(void) {
	uint8_t *p = mmap(NULL, reach + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p != MAP_FAILED && mprotect(p + reach, PAGE, PROT_NONE)) {
		munmap(p, reach + PAGE);
		p = MAP_FAILED;
	}
	area = p;
}

// coh_scratch_take returns the area for a receive of at most COH_SCRATCH bytes, or NULL if another
// thread uses it or it could not be made.
uint8_t *coh_scratch_take(void) {
	if (atomic_exchange_explicit(&taken, 1, memory_order_acquire)) return NULL;
	if (!area) make();
	if (area == MAP_FAILED) {
		atomic_store_explicit(&taken, 0, memory_order_release);
		return NULL;
	}
	owner = 1;
	return area;
}

// coh_scratch_give returns the area. After an overrun the system gets the memory back.
void coh_scratch_give(int overrun) {
	if (!owner) return;
	owner = 0;
	if (overrun) madvise(area + COH_SCRATCH, reach - COH_SCRATCH, MADV_DONTNEED);
	atomic_store_explicit(&taken, 0, memory_order_release);
}
