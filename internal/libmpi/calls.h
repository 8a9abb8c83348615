// What Go calls: the functions of the ABI in use.
#ifndef COH_CALLS_H
#define COH_CALLS_H

#include "blocked.h"
#include "load.h"

#define CALL static inline int

CALL coh_call_has(const char *f) { return coh->has(f); }
CALL coh_call_library_version(char *text) { return coh->library_version(text); }
CALL coh_call_version(int *major, int *minor) { return coh->version(major, minor); }
CALL coh_call_flags(int *initialized, int *finalized, int *level) { return coh->flags(initialized, finalized, level); }
CALL coh_call_finalize(void) { return coh->finalize(); }
CALL coh_call_abort(int code) { return coh->abort(code); }
CALL coh_call_error(int code, int *class, char *text) { return coh->error(code, class, text); }
static inline uintptr_t coh_call_world(void) { return coh->world(); }
CALL coh_call_comm_facts(uintptr_t comm, int *rank, int *size, int *ub) { return coh->comm_facts(comm, rank, size, ub); }
CALL coh_call_comm_dup(uintptr_t comm, uintptr_t *out) {
	int code;
	BLOCKING(code, coh->comm_dup(comm, out));
	return code;
}
CALL coh_call_comm_create(uintptr_t comm, int n, const int *ranks, int tag, uintptr_t *out) {
	int code;
	BLOCKING(code, coh->comm_create(comm, n, ranks, tag, out));
	return code;
}
CALL coh_call_comm_shared(uintptr_t comm, uintptr_t *out) { return coh->comm_shared(comm, out); }
CALL coh_call_comm_free(uintptr_t comm) { return coh->comm_free(comm); }
CALL coh_call_win_shared(uintptr_t comm, int64_t size, uintptr_t *out, uintptr_t *base) {
	int code;
	BLOCKING(code, coh->win_shared(comm, size, out, base));
	return code;
}
CALL coh_call_win_free(uintptr_t win) {
	int code;
	BLOCKING(code, coh->win_free(win));
	return code;
}
static inline uintptr_t coh_call_type_of(int kind) { return coh->type_of(kind); }
CALL coh_call_type_bytes(int64_t size, uintptr_t *out) { return coh->type_bytes(size, out); }
CALL coh_call_type_free(uintptr_t type) { return coh->type_free(type); }
static inline uintptr_t coh_call_op_of(int op) { return coh->op_of(op); }
CALL coh_call_op_create(int slot, int commute, uintptr_t *out) { return coh->op_create(slot, commute, out); }
CALL coh_call_op_free(uintptr_t op) { return coh->op_free(op); }
// The calls that take the least time store their code: for a result cgo makes two more calls.
static inline void coh_call_send(uintptr_t comm, const uint8_t *buf, int64_t n, int dest, int tag, int sync, int *code) {
	BLOCKING(*code, coh->send(comm, buf, n, dest, tag, sync));
}
static inline void coh_call_recv(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, coh_status *st) {
	BLOCKING(st->error, coh->recv(comm, buf, n, source, tag, st));
}
static inline void coh_call_recv_guarded(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, coh_status *st) {
	BLOCKING(st->error, coh->recv_guarded(comm, buf, n, source, tag, st));
}
CALL coh_call_isend(uintptr_t comm, const uint8_t *buf, int64_t n, int dest, int tag, int sync, uintptr_t *req, coh_status *st) {
	int code;
	BLOCKING(code, coh->isend(comm, buf, n, dest, tag, sync, req, st));
	return code;
}
CALL coh_call_irecv(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, uintptr_t *req, coh_status *st) {
	int code;
	BLOCKING(code, coh->irecv(comm, buf, n, source, tag, req, st));
	return code;
}
CALL coh_call_probe(uintptr_t comm, int source, int tag, int block, coh_status *st) {
	int code;
	BLOCKING(code, coh->probe(comm, source, tag, block, st));
	return code;
}
CALL coh_call_mprobe(uintptr_t comm, int source, int tag, int block, uintptr_t *msg, coh_status *st) {
	int code;
	BLOCKING(code, coh->mprobe(comm, source, tag, block, msg, st));
	return code;
}
CALL coh_call_imrecv(uintptr_t *msg, uint8_t *buf, int64_t n, uintptr_t *req, coh_status *st) {
	int code;
	BLOCKING(code, coh->imrecv(msg, buf, n, req, st));
	return code;
}
CALL coh_call_take(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, int *taken, uintptr_t *msg, uintptr_t *req, coh_status *st) {
	int code;
	BLOCKING(code, coh->take(comm, buf, n, source, tag, taken, msg, req, st));
	return code;
}
CALL coh_call_testsome(int n, uintptr_t *reqs, int spins, int *done, int *at, coh_status *st) {
	return coh->testsome(n, reqs, spins, done, at, st); // not while threads are taken out: the engine is stopped before
}
CALL coh_call_exchange(uintptr_t comm, const uint8_t *out, int n, int dest, uint8_t *in, int room, int source, int tag, int spins,
                       uintptr_t *req, coh_status *st) {
	int code;
	BLOCKING(code, coh->exchange(comm, out, n, dest, in, room, source, tag, spins, req, st));
	return code;
}
CALL coh_call_cancel(uintptr_t *req) { return coh->cancel(req); }
CALL coh_call_start(uintptr_t *req) {
	int code;
	BLOCKING(code, coh->start(req));
	return code;
}
CALL coh_call_free_request(uintptr_t *req) { return coh->free_request(req); }
CALL coh_call_coll(int coll, int form, int in_place, const uint8_t *send, uint8_t *recv, int64_t count, const int64_t *sc,
                   const int64_t *sd, const int64_t *rc, const int64_t *rd, uintptr_t type, uintptr_t op, int root, int size,
                   uintptr_t comm, uintptr_t *req) {
	int code;
	BLOCKING(code, coh->coll(coll, form, in_place, send, recv, count, sc, sd, rc, rd, type, op, root, size, comm, req));
	return code;
}
// The same for operations that come back into Go.
CALL coh_callback_coll(int coll, int form, int in_place, const uint8_t *send, uint8_t *recv, int64_t count, const int64_t *sc,
                       const int64_t *sd, const int64_t *rc, const int64_t *rd, uintptr_t type, uintptr_t op, int root, int size,
                       uintptr_t comm, uintptr_t *req) {
	int code;
	BLOCKING(code, coh->coll(coll, form, in_place, send, recv, count, sc, sd, rc, rd, type, op, root, size, comm, req));
	return code;
}
static inline void coh_call_bcast(uint8_t *buf, int64_t count, uintptr_t type, int root, uintptr_t comm, int *code) {
	BLOCKING(*code, coh->bcast(buf, count, type, root, comm));
}
static inline void coh_call_allgatherv(const uint8_t *send, int64_t own, uint8_t *recv, const int64_t *counts, const int64_t *displs, int size,
                                       uintptr_t type, uintptr_t comm, int *code) {
	BLOCKING(*code, coh->allgatherv(send, own, recv, counts, displs, size, type, comm));
}
static inline void coh_call_allreduce(const uint8_t *send, uint8_t *recv, int64_t count, uintptr_t type, uintptr_t op, uintptr_t comm, int *code) {
	BLOCKING(*code, coh->allreduce(send, recv, count, type, op, comm));
}
CALL coh_call_cuda(void) { return coh->cuda(); }
CALL coh_call_comm_ranks(uintptr_t comm, int room, int *ranks, int *n) { return coh->comm_ranks(comm, room, ranks, n); }

#endif
