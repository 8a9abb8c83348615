// The C side of package libmpi: what Go calls. Handles cross as uintptr_t, statuses as coh_status;
// shim_body.h turns them into those of the library's ABI.
#ifndef COH_SHIM_H
#define COH_SHIM_H

#include <stdint.h>

typedef struct {
	int32_t source, tag; // cohort's numbers
	int64_t bytes;       // -1: not known
	int32_t error;       // the library's code
	int32_t flag;        // complete, found
} coh_status;

// Codes of the shim, besides the library's.
enum {
	COH_OK = 0,
	COH_MISSING = -1,   // the library does not have the function
	COH_TOO_LARGE = -2, // a count above 2^31-1 that the library cannot express
	COH_THREAD = -3,    // the thread level forbids calls from this thread
	COH_NO_MEMORY = -4,
	COH_TRUNCATED = -5, // the message is longer; its start is in the buffer
	COH_ENDED = -6      // coh_end_blocked has ended the call
};

// Cohort's special ranks and tags (package backend).
enum { COH_ANY_SOURCE = -1, COH_ANY_TAG = -2147483647 - 1 };

// Collectives and forms, as in package backend.
enum {
	COH_BARRIER = 1, COH_BCAST, COH_REDUCE, COH_ALLREDUCE, COH_REDUCE_SCATTER_BLOCK, COH_REDUCE_SCATTER,
	COH_GATHER, COH_GATHERV, COH_ALLGATHER, COH_ALLGATHERV, COH_SCATTER, COH_SCATTERV, COH_ALLTOALL,
	COH_ALLTOALLV, COH_SCAN, COH_EXSCAN, COH_NEIGHBOR_ALLGATHER, COH_NEIGHBOR_ALLGATHERV,
	COH_NEIGHBOR_ALLTOALL, COH_NEIGHBOR_ALLTOALLV, COH_COLLS
};
enum { COH_BLOCKING, COH_NONBLOCKING, COH_PERSISTENT };

// Reductions and element kinds, as in package backend.
enum { COH_OP_USER, COH_SUM, COH_PROD, COH_MIN, COH_MAX, COH_LAND, COH_LOR, COH_LXOR, COH_BAND, COH_BOR, COH_BXOR, COH_OPS };
enum {
	COH_OPAQUE, COH_BOOL, COH_INT8, COH_INT16, COH_INT32, COH_INT64, COH_UINT8, COH_UINT16, COH_UINT32, COH_UINT64,
	COH_FLOAT16, COH_BFLOAT16, COH_FLOAT32, COH_FLOAT64, COH_COMPLEX64, COH_COMPLEX128, COH_KINDS
};

enum { COH_V_INTS = 256 }; // ranks up to which counts are converted on the stack

enum { COH_USER_OPS = 512 }; // user-defined operations at a time

// coh_shim holds the functions for one ABI.
typedef struct {
	const char *name;
	int (*resolve)(char *missing, int size); // finds the library's functions; the name of one that is missing and needed
	int (*has)(const char *function);
	int (*library_version)(char *text); // at least 8192 bytes
	int (*version)(int *major, int *minor);
	int (*init)(int level, int *provided); // levels 0 to 3
	int (*flags)(int *initialized, int *finalized, int *level);
	int (*finalize)(void);
	int (*abort)(int code);
	int (*error)(int code, int *class, char *text); // at least 1024 bytes
	uintptr_t (*world)(void);
	int (*comm_facts)(uintptr_t comm, int *rank, int *size, int *tag_ub);
	int (*comm_dup)(uintptr_t comm, uintptr_t *out);
	int (*comm_create)(uintptr_t comm, int n, const int *ranks, int tag, uintptr_t *out);
	int (*comm_shared)(uintptr_t comm, uintptr_t *out);
	int (*comm_free)(uintptr_t comm);
	int (*win_shared)(uintptr_t comm, int64_t size, uintptr_t *out, uintptr_t *base);
	int (*win_free)(uintptr_t win);
	uintptr_t (*type_of)(int kind);
	int (*type_bytes)(int64_t size, uintptr_t *out);
	int (*type_free)(uintptr_t type);
	uintptr_t (*op_of)(int op);
	int (*op_create)(int slot, int commute, uintptr_t *out);
	int (*op_free)(uintptr_t op);
	int (*send)(uintptr_t comm, const uint8_t *buf, int64_t n, int dest, int tag, int sync);
	int (*recv)(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, coh_status *st);
	int (*recv_guarded)(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, coh_status *st);
	int (*isend)(uintptr_t comm, const uint8_t *buf, int64_t n, int dest, int tag, int sync, uintptr_t *req, coh_status *st);
	int (*irecv)(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, uintptr_t *req, coh_status *st);
	int (*probe)(uintptr_t comm, int source, int tag, int block, coh_status *st);
	int (*mprobe)(uintptr_t comm, int source, int tag, int block, uintptr_t *msg, coh_status *st);
	int (*imrecv)(uintptr_t *msg, uint8_t *buf, int64_t n, uintptr_t *req, coh_status *st);
	int (*take)(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, int *taken, uintptr_t *msg, uintptr_t *req, coh_status *st);
	int (*testsome)(int n, uintptr_t *reqs, int spins, int *done, int *at, coh_status *st);
	int (*exchange)(uintptr_t comm, const uint8_t *out, int n, int dest, uint8_t *in, int room, int source, int tag, int spins,
	                uintptr_t *req, coh_status *st);
	int (*cancel)(uintptr_t *req);
	int (*start)(uintptr_t *req);
	int (*free_request)(uintptr_t *req);
	int (*coll)(int coll, int form, int in_place, const uint8_t *send, uint8_t *recv, int64_t count,
	            const int64_t *scounts, const int64_t *sdispls, const int64_t *rcounts, const int64_t *rdispls,
	            uintptr_t type, uintptr_t op, int root, int size, uintptr_t comm, uintptr_t *req);
	int (*bcast)(uint8_t *buf, int64_t count, uintptr_t type, int root, uintptr_t comm);
	int (*allgatherv)(const uint8_t *send, int64_t own, uint8_t *recv, const int64_t *counts, const int64_t *displs, int size,
	                  uintptr_t type, uintptr_t comm);
	int (*allreduce)(const uint8_t *send, uint8_t *recv, int64_t count, uintptr_t type, uintptr_t op, uintptr_t comm);
	int (*cuda)(void); // 1 yes, 0 no, -1 not known
	int (*comm_ranks)(uintptr_t comm, int room, int *ranks, int *n); // world ranks of the members
} coh_shim;

extern const coh_shim coh_shim_mpich, coh_shim_ompi, coh_shim_std;
extern const coh_shim *coh; // the one in use; NULL before coh_open

// coh_guard_thread says whether only the thread that called init may call, and coh_here is set there.
extern int coh_guard_thread;
extern __thread int coh_here;

void *coh_symbol(const char *name);

// The area that guarded receives land in, and how much may come without an overrun; see scratch_linux.c.
enum { COH_SCRATCH = 1 << 16 };
uint8_t *coh_scratch_take(void);
void coh_scratch_give(int overrun);

// coh_apply has Go apply the operation in a slot.
void coh_apply(int slot, void *in, void *inout, int64_t n);
void coh_go_apply(int slot, void *in, void *inout, int64_t n);

#endif
