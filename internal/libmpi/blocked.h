// Calls that may block in the library, and their end; see blocked_linux.c.
#ifndef COH_BLOCKED_H
#define COH_BLOCKED_H

// coh_place is where a call that may block returns to. GCC's own jumps save no registers, as the function that makes
// the call does that anyway. Clang has them on amd64 only.
typedef void *coh_place[5];

typedef struct coh_thread {
	int id;
	void **volatile at; // the place of the call that the thread is in, NULL: none, or the call has come back into Go
	struct coh_thread *next;
} coh_thread;

extern __thread coh_thread *coh_this_thread;
coh_thread *coh_new_thread(void);

// BLOCKING makes a call that coh_end_blocked can end. The code is then COH_ENDED.
#if defined(__x86_64__) || (defined(__aarch64__) && !defined(__clang__))
#define BLOCKING(code, call)                                                      \
	do {                                                                           \
		coh_thread *t = coh_this_thread;                                            \
		coh_place here;                                                             \
		if (__builtin_expect(!t, 0)) t = coh_new_thread();                          \
		if (__builtin_setjmp(here)) {                                               \
			code = COH_ENDED;                                                        \
		} else {                                                                    \
			t->at = here;                                                            \
			code = (call);                                                           \
			t->at = 0;                                                               \
		}                                                                           \
	} while (0)
#else
#define BLOCKING(code, call) (code = (call))
#endif

#endif
