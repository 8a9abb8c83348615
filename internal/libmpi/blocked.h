// Calls that may block in the library, and their end; see blocked_linux.c.
#ifndef COH_BLOCKED_H
#define COH_BLOCKED_H

// coh_place is where a call that may block returns to. GCC's own jumps save no registers, as the function that makes
// the call does that anyway. Clang has them on amd64 only.
typedef void *coh_place[5];

typedef struct coh_thread {
	int id;
	void **volatile at; // the place of the call that the thread is in, NULL: none, or the call has come back into Go
	volatile int sent; // the thread has not handled the last signal
	struct coh_thread *next;
} coh_thread;

extern __thread coh_thread *coh_this_thread;
coh_thread *coh_new_thread(void);
extern volatile int coh_over; // a thread has been taken out of the library, which nobody may call any more

// BLOCKING makes a call that coh_end_blocked can end. The code is then COH_ENDED. Calls that do not wait for other ranks are
// among them: they may wait for a lock, or begin while the threads are taken out.
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
			code = __builtin_expect(coh_over, 0) ? COH_ENDED : (call);               \
			t->at = 0;                                                               \
		}                                                                           \
	} while (0)
#else
#define BLOCKING(code, call) (code = (call))
#endif

#endif
