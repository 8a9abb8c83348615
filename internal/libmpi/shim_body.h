// The functions of one ABI, in ordinary MPI. Each shim_*_linux.c includes its ABI's header, then this
// file, in which MPI names stand for the library's resolved functions.
#include "shim.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED 1
#define USE 0

// The table of resolved functions.
static struct {
#define COH_FN(name, ret, params, need) ret(*name) params;
#define COH_FN2(name, other, ret, params, need) ret(*name) params;
#include "functions.h"
#undef COH_FN
#undef COH_FN2
} fn;

#define MPI(name) (fn.name)

static int resolve(char *missing, int size) {
	const char *lost = NULL;
#define COH_FN(name, ret, params, need) \
	fn.name = (ret(*) params)coh_symbol("MPI_" #name); \
	if (!fn.name && need) lost = "MPI_" #name;
#define COH_FN2(name, other, ret, params, need) \
	fn.name = (ret(*) params)coh_symbol("MPI_" #name); \
	if (!fn.name) fn.name = (ret(*) params)coh_symbol(other); \
	if (!fn.name && need) lost = "MPI_" #name;
#include "functions.h"
#undef COH_FN
#undef COH_FN2
	if (lost) {
		snprintf(missing, size, "%s", lost);
		return COH_MISSING;
	}
	return resolve_handles(missing, size);
}

static int has(const char *function) { return coh_symbol(function) != NULL; }

#define IN(type, h) ((type)(intptr_t)(h))

#define ENTER() \
	do { \
		if (__builtin_expect(coh_guard_thread, 0) && !coh_here) return COH_THREAD; \
	} while (0)

static int source_in(int source) { return source == COH_ANY_SOURCE ? MPI_ANY_SOURCE : source; }
static int tag_in(int tag) { return tag == COH_ANY_TAG ? MPI_ANY_TAG : tag; }

static void status_out(const MPI_Status *in, coh_status *out) {
	out->source = in->MPI_SOURCE;
	out->tag = in->MPI_TAG;
	out->bytes = status_bytes(in);
	out->flag = 1;
}

static int library_version(char *text) {
	int len;
	text[0] = 0;
	return MPI(Get_library_version)(text, &len);
}

static int version(int *major, int *minor) { return MPI(Get_version)(major, minor); }

static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};

static int level_out(int level) {
	for (int i = 0; i < 4; i++)
		if (levels[i] == level) return i;
	return 0;
}

static int returns_errors(MPI_Comm comm) { return MPI(Comm_set_errhandler)(comm, MPI_ERRORS_RETURN); }

static int init(int level, int *provided) {
	int got = 0;
	int rc = MPI(Init_thread)(NULL, NULL, levels[level], &got);
	if (rc) return rc;
	*provided = level_out(got);
	coh_here = 1;
	if ((rc = returns_errors(MPI_COMM_WORLD))) return rc;
	if ((rc = returns_errors(MPI_COMM_SELF))) return rc;
	if (MPI(File_set_errhandler)) MPI(File_set_errhandler)(MPI_FILE_NULL, MPI_ERRORS_RETURN); // of files opened later
	return 0;
}

static int flags(int *initialized, int *finalized, int *level) {
	int rc = MPI(Initialized)(initialized);
	if (!rc) rc = MPI(Finalized)(finalized);
	*level = 0;
	if (!rc && *initialized && !*finalized) {
		rc = MPI(Query_thread)(level);
		*level = level_out(*level);
	}
	return rc;
}

static int finalize(void) { return MPI(Finalize)(); }

static int do_abort(int code) { return MPI(Abort)(MPI_COMM_WORLD, code); }

static int error(int code, int *class, char *text) {
	int len = 0;
	*class = 0;
	text[0] = 0;
	int rc = MPI(Error_class)(code, class);
	if (!rc) rc = MPI(Error_string)(code, text, &len);
	return rc;
}

static uintptr_t world(void) { return OUT(MPI_COMM_WORLD); }

static int comm_facts(uintptr_t comm, int *rank, int *size, int *tag_ub) {
	ENTER();
	int *ub = NULL, found = 0;
	int rc = MPI(Comm_rank)(IN(MPI_Comm, comm), rank);
	if (!rc) rc = MPI(Comm_size)(IN(MPI_Comm, comm), size);
	if (!rc) rc = MPI(Comm_get_attr)(MPI_COMM_WORLD, MPI_TAG_UB, &ub, &found);
	*tag_ub = found && ub ? *ub : 32767;
	return rc;
}

static int comm_dup(uintptr_t comm, uintptr_t *out) {
	ENTER();
	MPI_Comm c = MPI_COMM_NULL;
	int rc = MPI(Comm_dup)(IN(MPI_Comm, comm), &c);
	if (!rc) rc = returns_errors(c);
	*out = OUT(c);
	return rc;
}

static int comm_create(uintptr_t comm, int n, const int *ranks, int tag, uintptr_t *out) {
	ENTER();
	MPI_Group all, some;
	MPI_Comm c = MPI_COMM_NULL;
	int rc = MPI(Comm_group)(IN(MPI_Comm, comm), &all);
	if (rc) return rc;
	rc = MPI(Group_incl)(all, n, ranks, &some);
	if (!rc) {
		rc = MPI(Comm_create_group)(IN(MPI_Comm, comm), some, tag, &c);
		MPI(Group_free)(&some);
	}
	MPI(Group_free)(&all);
	if (!rc) rc = returns_errors(c);
	*out = OUT(c);
	return rc;
}

static int comm_shared(uintptr_t comm, uintptr_t *out) {
	ENTER();
	MPI_Comm c = MPI_COMM_NULL;
	int rc = MPI(Comm_split_type)(IN(MPI_Comm, comm), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &c);
	if (!rc) rc = returns_errors(c);
	*out = OUT(c);
	return rc;
}

static int comm_free(uintptr_t comm) {
	ENTER();
	MPI_Comm c = IN(MPI_Comm, comm);
	return MPI(Comm_free)(&c);
}

// win_shared makes size bytes of memory, all in rank 0's part. base is its address in this process.
static int win_shared(uintptr_t comm, int64_t size, uintptr_t *out, uintptr_t *base) {
	ENTER();
	MPI_Win w = MPI_WIN_NULL;
	MPI_Aint all = 0;
	void *at = NULL;
	int rank, unit, rc = MPI(Comm_rank)(IN(MPI_Comm, comm), &rank);
	if (rc) return rc;
	rc = MPI(Win_allocate_shared)(rank == 0 ? (MPI_Aint)size : 0, 1, MPI_INFO_NULL, IN(MPI_Comm, comm), &at, &w);
	if (rc) return rc;
	*out = OUT(w);
	rc = MPI(Win_set_errhandler)(w, MPI_ERRORS_RETURN);
	if (!rc) rc = MPI(Win_shared_query)(w, 0, &all, &unit, &at);
	*base = (uintptr_t)at;
	return rc ? rc : all < size ? COH_NO_MEMORY : COH_OK;
}

static int win_free(uintptr_t win) {
	ENTER();
	MPI_Win w = IN(MPI_Win, win);
	return MPI(Win_free)(&w);
}

static uintptr_t type_of(int kind) {
	switch (kind) {
	case COH_OPAQUE: return OUT(MPI_BYTE);
	case COH_BOOL: return OUT(MPI_C_BOOL);
	case COH_INT8: return OUT(MPI_INT8_T);
	case COH_INT16: return OUT(MPI_INT16_T);
	case COH_INT32: return OUT(MPI_INT32_T);
	case COH_INT64: return OUT(MPI_INT64_T);
	case COH_UINT8: return OUT(MPI_UINT8_T);
	case COH_UINT16: return OUT(MPI_UINT16_T);
	case COH_UINT32: return OUT(MPI_UINT32_T);
	case COH_UINT64: return OUT(MPI_UINT64_T);
	case COH_FLOAT32: return OUT(MPI_FLOAT);
	case COH_FLOAT64: return OUT(MPI_DOUBLE);
	case COH_COMPLEX64: return OUT(MPI_C_FLOAT_COMPLEX);
	case COH_COMPLEX128: return OUT(MPI_C_DOUBLE_COMPLEX);
	}
	return 0;
}

static int type_bytes(int64_t size, uintptr_t *out) {
	ENTER();
	MPI_Datatype t;
	int rc;
	if (size > INT_MAX) return COH_TOO_LARGE;
	rc = MPI(Type_contiguous)((int)size, MPI_BYTE, &t);
	if (!rc) rc = MPI(Type_commit)(&t);
	*out = OUT(t);
	return rc;
}

static int type_free(uintptr_t type) {
	ENTER();
	MPI_Datatype t = IN(MPI_Datatype, type);
	return MPI(Type_free)(&t);
}

static uintptr_t op_of(int op) {
	switch (op) {
	case COH_SUM: return OUT(MPI_SUM);
	case COH_PROD: return OUT(MPI_PROD);
	case COH_MIN: return OUT(MPI_MIN);
	case COH_MAX: return OUT(MPI_MAX);
	case COH_LAND: return OUT(MPI_LAND);
	case COH_LOR: return OUT(MPI_LOR);
	case COH_LXOR: return OUT(MPI_LXOR);
	case COH_BAND: return OUT(MPI_BAND);
	case COH_BOR: return OUT(MPI_BOR);
	case COH_BXOR: return OUT(MPI_BXOR);
	}
	return 0;
}

// MPI does not pass the function of a user-defined operation the operation, nor the size of its
// elements. So each slot has its own function, and Go knows the operation in the slot.
#define TRAMPOLINE(i) \
	static void apply##i(void *in, void *inout, int *n, MPI_Datatype *type) { (void)type; coh_apply(i, in, inout, *n); }
#define EIGHT(m, i) m(i##0) m(i##1) m(i##2) m(i##3) m(i##4) m(i##5) m(i##6) m(i##7)
#define SIXTYFOUR(m, i) \
	EIGHT(m, i##0) EIGHT(m, i##1) EIGHT(m, i##2) EIGHT(m, i##3) EIGHT(m, i##4) EIGHT(m, i##5) EIGHT(m, i##6) EIGHT(m, i##7)
#define ALL_SLOTS(m) \
	SIXTYFOUR(m, 0) SIXTYFOUR(m, 01) SIXTYFOUR(m, 02) SIXTYFOUR(m, 03) SIXTYFOUR(m, 04) SIXTYFOUR(m, 05) SIXTYFOUR(m, 06) SIXTYFOUR(m, 07)
ALL_SLOTS(TRAMPOLINE) // octal: 000 to 0777

#define NAME(i) apply##i,
static MPI_User_function *const trampolines[COH_USER_OPS] = {ALL_SLOTS(NAME)};

static int op_create(int slot, int commute, uintptr_t *out) {
	ENTER();
	MPI_Op op;
	int rc = MPI(Op_create)(trampolines[slot], commute, &op);
	*out = OUT(op);
	return rc;
}

static int op_free(uintptr_t op) {
	ENTER();
	MPI_Op o = IN(MPI_Op, op);
	return MPI(Op_free)(&o);
}

// comm_ranks returns the ranks in MPI_COMM_WORLD of a communicator's members.
static int comm_ranks(uintptr_t comm, int room, int *ranks, int *n) {
	ENTER();
	MPI_Group some = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
	int rc = MPI(Comm_group)(IN(MPI_Comm, comm), &some);
	if (rc) return rc;
	*n = 0;
	rc = MPI(Group_size)(some, n);
	if (!rc && *n > room) rc = COH_TOO_LARGE;
	if (!rc) {
		int *from = malloc(*n * sizeof *from);
		if (!from) rc = COH_NO_MEMORY;
		for (int i = 0; from && i < *n; i++) from[i] = i;
		if (!rc) rc = MPI(Comm_group)(MPI_COMM_WORLD, &all);
		if (!rc) {
			rc = MPI(Group_translate_ranks)(some, *n, from, all, ranks);
			MPI(Group_free)(&all);
		}
		free(from);
	}
	MPI(Group_free)(&some);
	return rc;
}

// cuda returns whether the library reports that it accepts device pointers.
static int cuda(void) {
	int flag = 0;
	if (MPI(GPU_query_support)) return MPI(GPU_query_support)(0, &flag) ? -1 : flag;
	if (MPI(Query_cuda_support)) return MPI(Query_cuda_support)();
	return -1;
}

#include "shim_p2p.h"

#include "shim_coll.h"

const coh_shim COH_SHIM = {
	COH_ABI_NAME, resolve, has, library_version, version, init, flags, finalize, do_abort, error, world,
	comm_facts, comm_dup, comm_create, comm_shared, comm_free, win_shared, win_free, type_of, type_bytes, type_free, op_of, op_create, op_free,
	do_send, do_recv, recv_guarded, do_isend, do_irecv, do_probe, do_mprobe, do_imrecv, do_take, do_testsome, do_exchange, do_cancel, do_start,
	free_request, do_coll, do_bcast, do_allgatherv, do_allreduce, cuda, comm_ranks,
};
