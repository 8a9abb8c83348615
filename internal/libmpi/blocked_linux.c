// Ends calls that block in the library although a rank has failed.
//
// MPI has no function that ends a call of another thread. So the thread gets a signal, whose handler jumps back to where
// the thread entered the library. What the call has locked stays locked, and nobody may call the library afterwards.
//
// The handler jumps out of shared libraries and out of sched_yield, which threads call that wait for long. Elsewhere in
// the C library, and in another library that has malloc, a thread may hold a lock that the program still needs. It is
// left alone until the next signal. It is also left alone in a function of an operation: a jump would pass over frames
// of Go.
#define _GNU_SOURCE
#include "blocked.h"
#include "load.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

__thread coh_thread *coh_this_thread;
static _Atomic(coh_thread *) threads; // all that have made such a call
volatile int coh_over;

// coh_new_thread adds the calling thread to the list, where it stays.
coh_thread *coh_new_thread(void) {
	coh_thread *t = calloc(1, sizeof *t);
	if (!t) abort();
	t->id = (int)syscall(SYS_gettid);
	t->next = atomic_load(&threads);
	while (!atomic_compare_exchange_weak(&threads, &t->next, t)) {
	}
	return coh_this_thread = t;
}

void coh_apply(int slot, void *in, void *inout, int64_t n) {
	coh_thread *t = coh_this_thread;
	void **place = t ? t->at : NULL;
	if (t) t->at = NULL;
	coh_go_apply(slot, in, inout, n);
	if (t) t->at = place;
}

int coh_blocked(void) {
	int n = 0;
	for (coh_thread *t = atomic_load(&threads); t; t = t->next) n += t->at != NULL;
	return n;
}

// The code that a thread may be taken out of.
enum { RANGES = 1024 };
static struct {
	uintptr_t from, to;
} range[RANGES];
static int ranges;

static void add(uintptr_t from, uintptr_t bytes) {
	if (ranges == RANGES) return;
	range[ranges].from = from;
	range[ranges++].to = from + bytes;
}

enum { YIELD = 16 }; // bytes of sched_yield at least: a system call and a jump

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
	static const char *const not[] = {"/libc.", "/libc-", "/libpthread", "/libdl", "/ld-", "/ld.", "/libucm", "memory_patcher"};
	(void)size;
	if (!info->dlpi_name || !*info->dlpi_name) return 0; // the program
	uintptr_t allocator = (uintptr_t)data;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (allocator - (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr) < info->dlpi_phdr[i].p_memsz) return 0;
	for (unsigned i = 0; i < sizeof not / sizeof not[0]; i++)
		if (strstr(info->dlpi_name, not[i])) return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) add(info->dlpi_addr + p->p_vaddr, p->p_memsz);
	}
	return 0;
}

// interrupted returns the address that the signal has interrupted, 0 if it is not known on this processor.
static uintptr_t interrupted(const ucontext_t *c) {
#if defined(__x86_64__)
	return (uintptr_t)c->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return (uintptr_t)c->uc_mcontext.pc;
#else
	(void)c;
	return 0;
#endif
}

static void jump(int sig, siginfo_t *info, void *context) {
	(void)sig;
	(void)info;
	coh_thread *t = coh_this_thread;
	void **place = t ? t->at : NULL;
	uintptr_t pc = interrupted(context);
	for (int i = 0; place && i < ranges; i++) {
		if (pc - range[i].from < range[i].to - range[i].from) {
			t->at = NULL;
			t->sent = 0;
			__builtin_longjmp(place, 1);
		}
	}
	if (t) t->sent = 0;
}

// coh_end_blocked sends the signal to all threads that are in the library, except to those that have not handled the last
// one: signals of this kind queue, and the handlers of many would not fit on the signal stack. It is called by one thread
// at a time.
void coh_end_blocked(void) {
	if (!ranges) {
		struct sigaction a;
		memset(&a, 0, sizeof a);
		a.sa_sigaction = jump;
		a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER; // a jump does not restore the signal mask
		sigemptyset(&a.sa_mask);
		dl_iterate_phdr(visit, dlsym(RTLD_DEFAULT, "malloc"));
		void *yield = dlsym(RTLD_DEFAULT, "sched_yield");
		if (yield) add((uintptr_t)yield, YIELD);
		sigaction(SIGRTMAX, &a, NULL);
		coh_over = 1;
	}
	for (coh_thread *t = atomic_load(&threads); t; t = t->next)
		if (t->at && !t->sent) {
			t->sent = 1;
			syscall(SYS_tgkill, getpid(), t->id, SIGRTMAX);
		}
}
