// Calls that may block in the library, and their end; see blocked_linux.c.
#ifndef COH_BLOCKED_H
#define COH_BLOCKED_H

#include <setjmp.h>

// coh_place is a thread's place in a call that may block.
typedef struct coh_place {
	sigjmp_buf back;
	struct coh_place *outer; // a call around this one, whose operation has come back into Go
} coh_place;

typedef struct coh_thread {
	int id;
	coh_place *volatile at; // NULL: in no such call
	struct coh_thread *next;
} coh_thread;

extern __thread coh_thread *coh_this_thread;
coh_thread *coh_new_thread(void);

// BLOCKING makes a call that coh_end_blocked can end. The code is then COH_ENDED.
#define BLOCKING(code, call)                                                      \
	do {                                                                           \
		coh_thread *t = coh_this_thread;                                            \
		coh_place here;                                                             \
		if (__builtin_expect(!t, 0)) t = coh_new_thread();                          \
		here.outer = t->at;                                                         \
		if (sigsetjmp(here.back, 0)) {                                              \
			code = COH_ENDED;                                                        \
		} else {                                                                    \
			t->at = &here;                                                           \
			code = (call);                                                           \
		}                                                                           \
		coh_this_thread->at = here.outer;                                           \
	} while (0)

#endif
