// Loads an MPI library and undoes its changes to the process's signals.
//
// UCX replaces handlers when it is loaded and MPICH when it is initialized, some without SA_ONSTACK.
// UCX also gives the loading thread another alternate stack. After that a nil dereference in Go ends
// the process, and so does SIGUSR1 or SIGHUP. So all dispositions and the alternate stack are saved
// before and restored after.
//
// The threads of a library must not receive the process's signals: if the program does not ask for a
// signal that arrives on a thread that is not Go's, Go lets it end the process. So threads that the
// library starts while it is loaded and initialized here start with all signals blocked except those
// that a thread's own instructions cause. Threads that it starts later have the signal mask of the
// thread that calls it.
#define _GNU_SOURCE
#include "load.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { SIGNALS = 65 };

typedef struct {
	struct sigaction action[SIGNALS];
	char valid[SIGNALS];
	stack_t stack;
	sigset_t mask;
} dispositions;

// note saves the dispositions, and blocks signals on this thread and those that it starts.
static void note(dispositions *d) {
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
	sigset_t held;
	memset(d, 0, sizeof *d);
	sigfillset(&held);
	for (unsigned i = 0; i < sizeof own / sizeof own[0]; i++) sigdelset(&held, own[i]);
	pthread_sigmask(SIG_SETMASK, &held, &d->mask);
	for (int i = 1; i < SIGNALS; i++) d->valid[i] = sigaction(i, NULL, &d->action[i]) == 0;
	sigaltstack(NULL, &d->stack);
}

static int differs(const struct sigaction *a, const struct sigaction *b) {
	if ((a->sa_flags & SA_SIGINFO) != (b->sa_flags & SA_SIGINFO) || a->sa_flags != b->sa_flags) return 1;
	if (a->sa_flags & SA_SIGINFO) return a->sa_sigaction != b->sa_sigaction;
	return a->sa_handler != b->sa_handler;
}

// put_back undoes note.
static void put_back(const dispositions *d) {
	for (int i = 1; i < SIGNALS; i++) {
		struct sigaction now;
		if (!d->valid[i] || sigaction(i, NULL, &now) || !differs(&now, &d->action[i])) continue;
		sigaction(i, &d->action[i], NULL);
	}
	stack_t now;
	if (sigaltstack(NULL, &now) == 0 && (now.ss_sp != d->stack.ss_sp || now.ss_size != d->stack.ss_size || now.ss_flags != d->stack.ss_flags)) {
		sigaltstack(&d->stack, NULL);
	}
	pthread_sigmask(SIG_SETMASK, &d->mask, NULL);
}

const coh_shim *coh;
int coh_guard_thread;
__thread int coh_here;

// scope is where names are looked up: in a library, or NULL as the program itself does it.
static void *scope;

// coh_symbol looks a name up as the program itself does, so that preloaded tools (LD_PRELOAD)
// replace the library's functions.
void *coh_symbol(const char *name) { return dlsym(scope ? scope : RTLD_DEFAULT, name); }

// coh_present reports whether an MPI library is in the process already. MPI_Get_version may belong
// to a tool; PMPI_Get_version belongs to the library.
int coh_present(void) { return dlsym(RTLD_DEFAULT, "PMPI_Get_version") != NULL; }

static const coh_shim *shim_of(int abi) { return abi == COH_STD ? &coh_shim_std : abi == COH_OMPI ? &coh_shim_ompi : &coh_shim_mpich; }

// lacks looks up a library's functions in it alone, and reports what it needs and does not have.
static int lacks(void *library, char *text, int size) {
	scope = library;
	int rc = 0;
	char name[64];
	if (!coh_symbol("MPI_Get_version") || !coh_symbol("PMPI_Get_version")) {
		snprintf(text, size, "no MPI library: it has no MPI_Get_version and PMPI_Get_version");
		rc = -1;
	} else if (shim_of(coh_recognize())->resolve(name, sizeof name)) {
		snprintf(text, size, "too old: it has no %s", name);
		rc = -1;
	}
	scope = NULL;
	return rc;
}

// coh_load loads a library for the whole process: components that it loads look up its functions
// there. It is never unloaded. An unusable library stays hidden, so that the next can be tried.
int coh_load(const char *path, char *text, int size) {
	dispositions before;
	note(&before);
	int rc = -1;
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (h && lacks(h, text, size)) {
		rc = 1;
	} else if (h && dlopen(path, RTLD_NOW | RTLD_GLOBAL)) {
		rc = 0;
	} else {
		const char *why = dlerror();
		snprintf(text, size, "%s", why ? why : "no reason given");
	}
	put_back(&before);
	return rc;
}

// coh_recognize returns the ABI of the loaded library.
int coh_recognize(void) {
	int (*abi_version)(int *, int *) = (int (*)(int *, int *))coh_symbol("MPI_Abi_get_version");
	if (abi_version) {
		int major = -1, minor = -1;
		if (abi_version(&major, &minor) == 0 && major > 0) return COH_STD;
	}
	return coh_symbol("ompi_mpi_comm_self") ? COH_OMPI : COH_MPICH;
}

// coh_bind selects the functions of an ABI.
int coh_bind(int abi, char *text, int size) {
	const coh_shim *shim = shim_of(abi);
	int rc = shim->resolve(text, size);
	if (rc == 0) coh = shim;
	return rc;
}

// coh_loaded_path returns the file that contains the library's functions.
const char *coh_loaded_path(void) {
	Dl_info info;
	void *f = coh_symbol("PMPI_Get_version");
	if (!f) f = coh_symbol("MPI_Get_version");
	return f && dladdr(f, &info) && info.dli_fname ? info.dli_fname : "";
}

// coh_init initializes the library and restores the signals.
int coh_init(int level, int *provided) {
	dispositions before;
	note(&before);
	int rc = coh->init(level, provided);
	put_back(&before);
	return rc;
}

// coh_may_call reports whether this thread may call the library at the current level.
int coh_may_call(void) { return !coh_guard_thread || coh_here; }

// coh_adopt makes this the thread that may call, if other code called init.
void coh_adopt(void) { coh_here = 1; }
