// Part of shim_body.h: point to point and requests. All messages are bytes.

// span expresses a number of bytes for the library: n elements of type.
typedef struct {
	int n;
	MPI_Datatype type;
	int made; // type has to be freed
} span;

// long_span makes the type for more bytes than fit into an int: blocks of 1 GiB, then the rest.
static int long_span(int64_t bytes, span *s) {
	const int block = 1 << 30;
	MPI_Datatype blocks, parts[2];
	int rc = MPI(Type_contiguous)(block, MPI_BYTE, &blocks);
	if (rc) return rc;
	int64_t whole = bytes / block;
	if (whole > INT_MAX) {
		MPI(Type_free)(&blocks);
		return COH_TOO_LARGE;
	}
	rc = MPI(Type_contiguous)((int)whole, blocks, &parts[0]);
	MPI(Type_free)(&blocks);
	if (rc) return rc;
	parts[1] = MPI_BYTE;
	int lengths[2] = {1, (int)(bytes % block)};
	MPI_Aint displs[2] = {0, (MPI_Aint)(whole * block)};
	rc = MPI(Type_create_struct)(2, lengths, displs, parts, &s->type);
	MPI(Type_free)(&parts[0]);
	if (rc) return rc;
	s->n = 1;
	s->made = 1;
	return MPI(Type_commit)(&s->type);
}

static inline __attribute__((always_inline)) int make_span(int64_t bytes, span *s) {
	s->n = (int)bytes;
	s->type = MPI_BYTE;
	s->made = 0;
	return bytes <= INT_MAX ? 0 : long_span(bytes, s);
}

static void end_span(span *s) {
	if (s->made) MPI(Type_free)(&s->type); // the library keeps it until operations with it are complete
}

static int do_send(uintptr_t comm, const uint8_t *buf, int64_t n, int dest, int tag, int sync) {
	ENTER();
	span s;
	int rc = make_span(n, &s);
	if (rc) return rc;
	if (sync)
		rc = MPI(Ssend)(buf, s.n, s.type, dest, tag, IN(MPI_Comm, comm));
	else
		rc = MPI(Send)(buf, s.n, s.type, dest, tag, IN(MPI_Comm, comm));
	end_span(&s);
	return rc;
}

static int do_recv(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, coh_status *st) {
	ENTER();
	span s;
	MPI_Status status;
	int rc = make_span(n, &s);
	if (rc) return rc;
	rc = MPI(Recv)(buf, s.n, s.type, source_in(source), tag_in(tag), IN(MPI_Comm, comm), &status);
	end_span(&s);
	status_out(&status, st);
	return rc;
}

enum { GUARDED_SMALL = 4096 };

// recv_matched receives a matched message. If it is longer than the buffer, it is received into other
// memory, and what fits is copied.
static int recv_matched(MPI_Message *msg, uint8_t *buf, int64_t n, coh_status *st) {
	span s;
	MPI_Status status;
	uint8_t *whole = buf;
	int64_t bytes = st->bytes;
	if (bytes > n && bytes > 0 && !(whole = malloc((size_t)bytes))) return COH_NO_MEMORY;
	int rc = make_span(bytes, &s);
	if (!rc) {
		rc = MPI(Mrecv)(whole, s.n, s.type, msg, &status);
		end_span(&s);
	}
	if (whole != buf) {
		if (!rc) memcpy(buf, whole, (size_t)n);
		free(whole);
		if (!rc) rc = COH_TRUNCATED;
	}
	return rc;
}

// recv_guarded is do_recv for libraries that write past the end of the buffer if a long message is
// longer than the receive. A short receive uses the scratch area, which has room for whatever is
// written. Others probe the message before they receive it. The receive in the scratch area is longer
// than asked for, so that a message that is too long is complete and its length known: Open MPI
// reports no error if a short message of a rank to itself is too long.
static int recv_guarded(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, coh_status *st) {
	ENTER();
	MPI_Status status;
	uint8_t *scratch;
	if (n <= GUARDED_SMALL && (scratch = coh_scratch_take())) {
		int rc = MPI(Recv)(scratch, COH_SCRATCH, MPI_BYTE, source_in(source), tag_in(tag), IN(MPI_Comm, comm), &status);
		status_out(&status, st);
		int64_t got = st->bytes;
		int class = 0;
		if (rc) {
			MPI(Error_class)(rc, &class);
			got = class == MPI_ERR_TRUNCATE ? n : 0;
		} else if (got > n) {
			rc = COH_TRUNCATED;
			got = n;
		}
		if (got > 0) memcpy(buf, scratch, (size_t)got);
		coh_scratch_give(class);
		return rc;
	}
	MPI_Message msg;
	int rc = MPI(Mprobe)(source_in(source), tag_in(tag), IN(MPI_Comm, comm), &msg, &status);
	if (rc) return rc;
	status_out(&status, st);
	return recv_matched(&msg, buf, n, st);
}

// tested tests whether a request is complete; short sends are at once.
static int tested(MPI_Request q, uintptr_t *req, coh_status *st) {
	MPI_Status status;
	int flag = 0;
	int rc = MPI(Test)(&q, &flag, &status);
	if (flag) status_out(&status, st);
	st->flag = flag;
	*req = OUT(q);
	return rc;
}

static int do_isend(uintptr_t comm, const uint8_t *buf, int64_t n, int dest, int tag, int sync, uintptr_t *req, coh_status *st) {
	ENTER();
	span s;
	MPI_Request q;
	int rc = make_span(n, &s);
	if (rc) return rc;
	if (sync)
		rc = MPI(Issend)(buf, s.n, s.type, dest, tag, IN(MPI_Comm, comm), &q);
	else
		rc = MPI(Isend)(buf, s.n, s.type, dest, tag, IN(MPI_Comm, comm), &q);
	end_span(&s);
	return rc ? rc : tested(q, req, st);
}

static int do_irecv(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, uintptr_t *req, coh_status *st) {
	ENTER();
	span s;
	MPI_Request q;
	int rc = make_span(n, &s);
	if (rc) return rc;
	rc = MPI(Irecv)(buf, s.n, s.type, source_in(source), tag_in(tag), IN(MPI_Comm, comm), &q);
	end_span(&s);
	st->flag = 0; // not tested: most receives are posted before their message has arrived
	if (!rc) *req = OUT(q);
	return rc;
}

static int do_probe(uintptr_t comm, int source, int tag, int block, coh_status *st) {
	ENTER();
	MPI_Status status;
	int flag = 1, rc;
	if (block)
		rc = MPI(Probe)(source_in(source), tag_in(tag), IN(MPI_Comm, comm), &status);
	else
		rc = MPI(Iprobe)(source_in(source), tag_in(tag), IN(MPI_Comm, comm), &flag, &status);
	if (!rc && flag) status_out(&status, st);
	st->flag = flag;
	return rc;
}

static int do_mprobe(uintptr_t comm, int source, int tag, int block, uintptr_t *msg, coh_status *st) {
	ENTER();
	MPI_Status status;
	MPI_Message m = MPI_MESSAGE_NULL;
	int flag = 1, rc;
	if (block)
		rc = MPI(Mprobe)(source_in(source), tag_in(tag), IN(MPI_Comm, comm), &m, &status);
	else
		rc = MPI(Improbe)(source_in(source), tag_in(tag), IN(MPI_Comm, comm), &flag, &m, &status);
	if (!rc && flag) status_out(&status, st);
	st->flag = flag;
	*msg = OUT(m);
	return rc;
}

// do_imrecv starts the receive of a matched message that fits into n bytes.
static int do_imrecv(uintptr_t *msg, uint8_t *buf, int64_t n, uintptr_t *req, coh_status *st) {
	ENTER();
	span s;
	MPI_Request q;
	MPI_Message m = IN(MPI_Message, *msg);
	int rc = make_span(n, &s);
	if (rc) return rc;
	rc = MPI(Imrecv)(buf, s.n, s.type, &m, &q);
	end_span(&s);
	*msg = OUT(m);
	return rc ? rc : tested(q, req, st);
}

// do_take is do_mprobe without waiting, followed by do_imrecv if the message fits into n bytes. *msg is the message if it
// does not. *taken says whether there is one.
static int do_take(uintptr_t comm, uint8_t *buf, int64_t n, int source, int tag, int *taken, uintptr_t *msg, uintptr_t *req,
                   coh_status *st) {
	ENTER();
	int rc = do_mprobe(comm, source, tag, 0, msg, st);
	if (rc || !st->flag) return rc;
	*taken = 1;
	if (st->bytes > n) return 0;
	st->flag = 0;
	return do_imrecv(msg, buf, n, req, st);
}

enum { SOME = 64 };

// do_testsome finds the requests that are complete. It tries up to spins times while there are none. at
// gets their indexes, st their statuses, and reqs is updated.
static int do_testsome(int n, uintptr_t *reqs, int spins, int *done, int *at, coh_status *st) {
	ENTER();
	MPI_Request q[SOME];
	MPI_Status status[SOME];
	int where[SOME], rc = 0;
	*done = 0;
	for (;;) {
		for (int from = 0; from < n; from += SOME) {
			int count = 0, m = n - from < SOME ? n - from : SOME;
			for (int i = 0; i < m; i++) q[i] = IN(MPI_Request, reqs[from + i]);
			rc = MPI(Testsome)(m, q, &count, where, status);
			if (rc && rc != MPI_ERR_IN_STATUS) {
				int class = 0;
				MPI(Error_class)(rc, &class);
				if (class != MPI_ERR_IN_STATUS) return rc;
			}
			if (count == MPI_UNDEFINED) continue;
			for (int i = 0; i < count; i++) {
				coh_status *out = &st[*done];
				status_out(&status[i], out);
				out->error = rc ? status[i].MPI_ERROR : 0;
				int cancelled = 0;
				if (!out->error && !MPI(Test_cancelled)(&status[i], &cancelled) && cancelled) out->flag = 2;
				reqs[from + where[i]] = OUT(q[where[i]]);
				at[(*done)++] = from + where[i];
			}
		}
		if (*done || --spins <= 0) return 0;
	}
}

// do_exchange starts a receive and a short send, in this order, and waits a little for both. Each has a request and a
// status, whose error says why it has failed.
static int do_exchange(uintptr_t comm, const uint8_t *out, int n, int dest, uint8_t *in, int room, int source, int tag,
                       int spins, uintptr_t *req, coh_status *st) {
	ENTER();
	MPI_Request recv, send;
	MPI_Status status;
	int got = 0, sent = 0, failed = 0;
	int rc = MPI(Irecv)(in, room, MPI_BYTE, source, tag, IN(MPI_Comm, comm), &recv);
	if (rc) return rc;
	int unsent = MPI(Isend)(out, n, MPI_BYTE, dest, tag, IN(MPI_Comm, comm), &send);
	for (; spins > 0; spins--) {
		if (!unsent && !sent) unsent = MPI(Test)(&send, &sent, MPI_STATUS_IGNORE);
		if (!failed && !got) failed = MPI(Test)(&recv, &got, &status);
		if ((unsent || sent) && (failed || got)) break;
	}
	if (got) status_out(&status, &st[0]);
	st[0].flag = got, st[0].error = failed, req[0] = OUT(recv);
	st[1].flag = sent, st[1].error = unsent, req[1] = OUT(send);
	return 0;
}

static int do_cancel(uintptr_t *req) {
	ENTER();
	MPI_Request q = IN(MPI_Request, *req);
	int rc = MPI(Cancel)(&q);
	*req = OUT(q);
	return rc;
}

static int do_start(uintptr_t *req) {
	ENTER();
	MPI_Request q = IN(MPI_Request, *req);
	int rc = MPI(Start)(&q);
	*req = OUT(q);
	return rc;
}

static int free_request(uintptr_t *req) {
	ENTER();
	MPI_Request q = IN(MPI_Request, *req);
	int rc = MPI(Request_free)(&q);
	*req = OUT(q);
	return rc;
}
