// Part of shim_body.h: collectives.

// FORMS calls a collective in the requested form: name(args…), I##lower(args…, &q), name_init(args…, info, &q).
#define FORMS(name, lower, ...) \
	do { \
		if (form == COH_BLOCKING) return MPI(name)(__VA_ARGS__); \
		MPI_Request q; \
		int rc; \
		if (form == COH_NONBLOCKING) { \
			rc = MPI(I##lower)(__VA_ARGS__, &q); \
		} else { \
			if (!MPI(name##_init)) return COH_MISSING; \
			rc = MPI(name##_init)(__VA_ARGS__, MPI_INFO_NULL, &q); \
		} \
		if (!rc) *req = OUT(q); \
		return rc; \
	} while (0)

// LARGE does the same with the functions whose counts are MPI_Count.
#define LARGE(name, lower, ...) \
	do { \
		MPI_Request q; \
		int rc; \
		if (form == COH_BLOCKING) { \
			if (!MPI(name##_c)) return COH_TOO_LARGE; \
			return MPI(name##_c)(__VA_ARGS__); \
		} else if (form == COH_NONBLOCKING) { \
			if (!MPI(I##lower##_c)) return COH_TOO_LARGE; \
			rc = MPI(I##lower##_c)(__VA_ARGS__, &q); \
		} else { \
			if (!MPI(name##_init_c)) return COH_TOO_LARGE; \
			rc = MPI(name##_init_c)(__VA_ARGS__, MPI_INFO_NULL, &q); \
		} \
		if (!rc) *req = OUT(q); \
		return rc; \
	} while (0)

// fits reports whether n numbers fit into ints, and converts them.
static int fits(const int64_t *in, int *out, int n) {
	for (int i = 0; i < n; i++) {
		if (in[i] > INT_MAX) return 0;
		out[i] = (int)in[i];
	}
	return 1;
}

// with_counts makes the v-forms. narrow has room for four arrays of size ints. Unless the operation
// blocks, it lives until the operation is complete.
static int with_counts(int coll, int form, const void *send, void *recv, const int64_t *scounts, const int64_t *sdispls,
                       const int64_t *rcounts, const int64_t *rdispls, MPI_Datatype t, MPI_Op op, int root, int64_t own,
                       int size, int *narrow, MPI_Comm c, uintptr_t *req) {
	int *sc = narrow, *sd = narrow + size, *rc_ = narrow + 2 * size, *rd = narrow + 3 * size;
	int small = own <= INT_MAX;
	if (scounts) small &= fits(scounts, sc, size);
	if (sdispls) small &= fits(sdispls, sd, size);
	if (rcounts) small &= fits(rcounts, rc_, size);
	if (rdispls) small &= fits(rdispls, rd, size);
	const MPI_Count *bsc = (const MPI_Count *)scounts, *brc = (const MPI_Count *)rcounts;
	const MPI_Aint *bsd = (const MPI_Aint *)sdispls, *brd = (const MPI_Aint *)rdispls;
	switch (coll) {
	case COH_GATHERV:
		if (small) FORMS(Gatherv, gatherv, send, (int)own, t, recv, rc_, rd, t, root, c);
		LARGE(Gatherv, gatherv, send, own, t, recv, brc, brd, t, root, c);
	case COH_SCATTERV:
		if (small) FORMS(Scatterv, scatterv, send, sc, sd, t, recv, (int)own, t, root, c);
		LARGE(Scatterv, scatterv, send, bsc, bsd, t, recv, own, t, root, c);
	case COH_ALLGATHERV:
		if (small) FORMS(Allgatherv, allgatherv, send, (int)own, t, recv, rc_, rd, t, c);
		LARGE(Allgatherv, allgatherv, send, own, t, recv, brc, brd, t, c);
	case COH_ALLTOALLV:
		if (small) FORMS(Alltoallv, alltoallv, send, sc, sd, t, recv, rc_, rd, t, c);
		LARGE(Alltoallv, alltoallv, send, bsc, bsd, t, recv, brc, brd, t, c);
	case COH_REDUCE_SCATTER:
		if (small) FORMS(Reduce_scatter, reduce_scatter, send, recv, rc_, t, op, c);
		LARGE(Reduce_scatter, reduce_scatter, send, recv, brc, t, op, c);
	}
	return COH_MISSING;
}

// do_coll makes a collective call. For the v-forms count is the length of the part that has no array:
// what a rank sends in Gatherv and Allgatherv, receives in Scatterv. The arrays, and narrow copies of
// them that *req holds at first, live until the operation is complete.
static int do_coll(int coll, int form, int in_place, const uint8_t *sendp, uint8_t *recvp, int64_t count,
                   const int64_t *scounts, const int64_t *sdispls, const int64_t *rcounts, const int64_t *rdispls,
                   uintptr_t type, uintptr_t opp, int root, int size, uintptr_t comm, uintptr_t *req) {
	ENTER();
	static uint8_t none[2]; // libraries reject null pointers for empty buffers, and one pointer for both
	MPI_Datatype t = IN(MPI_Datatype, type);
	MPI_Op op = IN(MPI_Op, opp);
	MPI_Comm c = IN(MPI_Comm, comm);
	const void *send = sendp ? sendp : none;
	void *recv = recvp ? recvp : none + 1;
	if (in_place) {
		if (coll == COH_SCATTER || coll == COH_SCATTERV)
			recv = MPI_IN_PLACE;
		else
			send = MPI_IN_PLACE;
	}
	int n = (int)count, small = count <= INT_MAX;
	switch (coll) {
	case COH_BARRIER:
		FORMS(Barrier, barrier, c);
	case COH_BCAST:
		if (small) FORMS(Bcast, bcast, recv, n, t, root, c);
		LARGE(Bcast, bcast, recv, count, t, root, c);
	case COH_REDUCE:
		if (small) FORMS(Reduce, reduce, send, recv, n, t, op, root, c);
		LARGE(Reduce, reduce, send, recv, count, t, op, root, c);
	case COH_ALLREDUCE:
		if (small) FORMS(Allreduce, allreduce, send, recv, n, t, op, c);
		LARGE(Allreduce, allreduce, send, recv, count, t, op, c);
	case COH_REDUCE_SCATTER_BLOCK:
		if (small) FORMS(Reduce_scatter_block, reduce_scatter_block, send, recv, n, t, op, c);
		LARGE(Reduce_scatter_block, reduce_scatter_block, send, recv, count, t, op, c);
	case COH_GATHER:
		if (small) FORMS(Gather, gather, send, n, t, recv, n, t, root, c);
		LARGE(Gather, gather, send, count, t, recv, count, t, root, c);
	case COH_ALLGATHER:
		if (small) FORMS(Allgather, allgather, send, n, t, recv, n, t, c);
		LARGE(Allgather, allgather, send, count, t, recv, count, t, c);
	case COH_SCATTER:
		if (small) FORMS(Scatter, scatter, send, n, t, recv, n, t, root, c);
		LARGE(Scatter, scatter, send, count, t, recv, count, t, root, c);
	case COH_ALLTOALL:
		if (small) FORMS(Alltoall, alltoall, send, n, t, recv, n, t, c);
		LARGE(Alltoall, alltoall, send, count, t, recv, count, t, c);
	case COH_SCAN:
		if (small) FORMS(Scan, scan, send, recv, n, t, op, c);
		LARGE(Scan, scan, send, recv, count, t, op, c);
	case COH_EXSCAN:
		if (small) FORMS(Exscan, exscan, send, recv, n, t, op, c);
		LARGE(Exscan, exscan, send, recv, count, t, op, c);
	}
	if (form != COH_BLOCKING) // *req holds the caller's memory at first
		return with_counts(coll, form, send, recv, scounts, sdispls, rcounts, rdispls, t, op, root, count, size, (int *)*req, c, req);
	int stack[4 * COH_V_INTS];
	int *narrow = size <= COH_V_INTS ? stack : malloc(sizeof(int) * 4 * (size_t)size);
	if (!narrow) return COH_NO_MEMORY;
	int rc = with_counts(coll, form, send, recv, scounts, sdispls, rcounts, rdispls, t, op, root, count, size, narrow, c, req);
	if (narrow != stack) free(narrow);
	return rc;
}

// do_bcast, do_allgatherv and do_allreduce make the most frequent collectives with little overhead. No buffer is empty, counts
// and displacements fit into ints, and there are at most COH_V_INTS of them.
static int do_bcast(uint8_t *buf, int64_t count, uintptr_t type, int root, uintptr_t comm) {
	ENTER();
	return MPI(Bcast)(buf, (int)count, IN(MPI_Datatype, type), root, IN(MPI_Comm, comm));
}

static int do_allgatherv(const uint8_t *send, int64_t own, uint8_t *recv, const int64_t *counts, const int64_t *displs, int size,
                         uintptr_t type, uintptr_t comm) {
	ENTER();
	int c[COH_V_INTS], d[COH_V_INTS];
	for (int i = 0; i < size; i++) c[i] = (int)counts[i], d[i] = (int)displs[i];
	MPI_Datatype t = IN(MPI_Datatype, type);
	return MPI(Allgatherv)(send, (int)own, t, recv, c, d, t, IN(MPI_Comm, comm));
}

// send NULL means in place.
static int do_allreduce(const uint8_t *send, uint8_t *recv, int64_t count, uintptr_t type, uintptr_t op, uintptr_t comm) {
	ENTER();
	return MPI(Allreduce)(send ? (const void *)send : MPI_IN_PLACE, recv, (int)count, IN(MPI_Datatype, type), IN(MPI_Op, op), IN(MPI_Comm, comm));
}
