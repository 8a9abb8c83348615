// The functions of ULFM on top of an Open MPI that has none, for tests of what calls them. Preloaded into
// the ranks, which share the folder ULFM_DIR:
//
//	lost.R        rank R counts as lost: operations that need it end with MPIX_ERR_PROC_FAILED
//	revoked.C     the communicator of this number is revoked
//	made.C.R      rank R has returned from the call that made communicator C
//	C.N.R.ACKS.F  rank R gives flag F in the N-th agreement on C, having acknowledged ACKS (bits)
//
// Nobody dies: how a library learns of that, and what its launcher does then, is not what this is for.
#include <dirent.h>
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FT = 12, FAILED = 75, PENDING = 76, REVOKED = 77, COMMS = 256 };

static int acked[COMMS], votes[COMMS];

static const char *path(char *to, const char *name) {
	snprintf(to, 512, "%s/%s", getenv("ULFM_DIR"), name);
	return to;
}

static int there(const char *format, int n) {
	char name[64], at[512];
	snprintf(name, sizeof name, format, n);
	return access(path(at, name), F_OK) == 0;
}

static int number(MPI_Comm c) { return MPI_Comm_c2f(c) % COMMS; } // the same on all members

static int world_of(MPI_Comm c, int rank) {
	MPI_Group all, some;
	int w = -1;
	PMPI_Comm_group(MPI_COMM_WORLD, &all);
	PMPI_Comm_group(c, &some);
	PMPI_Group_translate_ranks(some, 1, &rank, all, &w);
	PMPI_Group_free(&all);
	PMPI_Group_free(&some);
	return w;
}

// lost returns the members that are lost, a bit for each rank of c.
static int lost(MPI_Comm c) {
	int n, bits = 0;
	PMPI_Comm_size(c, &n);
	for (int r = 0; r < n; r++)
		if (there("lost.%d", world_of(c, r))) bits |= 1 << r;
	return bits;
}

// ended is what an operation with one member, or with all (-1), ends with; 0: it can go on.
static int ended(MPI_Comm c, int with) {
	if (there("revoked.%d", number(c))) return REVOKED;
	int bits = lost(c);
	return (with < 0 ? bits : bits >> with & 1) ? FAILED : 0;
}

static int until(MPI_Comm c, int rc, MPI_Request *q) {
	for (int done = 0; !rc && !done; sched_yield())
		if (!(rc = PMPI_Test(q, &done, MPI_STATUS_IGNORE)) && !done) rc = ended(c, -1);
	return rc;
}

int MPI_Barrier(MPI_Comm c) {
	MPI_Request q;
	int rc = ended(c, -1);
	return rc ? rc : until(c, PMPI_Ibarrier(c, &q), &q);
}
int MPI_Allreduce(const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c) {
	MPI_Request q;
	int rc = ended(c, -1);
	return rc ? rc : until(c, PMPI_Iallreduce(s, r, n, t, o, c, &q), &q);
}
int MPI_Send(const void *b, int n, MPI_Datatype t, int d, int tag, MPI_Comm c) {
	int rc = ended(c, d);
	return rc ? rc : PMPI_Send(b, n, t, d, tag, c);
}
int MPI_Isend(const void *b, int n, MPI_Datatype t, int d, int tag, MPI_Comm c, MPI_Request *q) {
	int rc = ended(c, d);
	return rc ? rc : PMPI_Isend(b, n, t, d, tag, c, q);
}
int MPI_Iprobe(int s, int tag, MPI_Comm c, int *flag, MPI_Status *st) {
	int rc = ended(c, s);
	return rc ? rc : PMPI_Iprobe(s, tag, c, flag, st);
}
int MPI_Improbe(int s, int tag, MPI_Comm c, int *flag, MPI_Message *m, MPI_Status *st) {
	int rc = ended(c, s);
	return rc ? rc : PMPI_Improbe(s, tag, c, flag, m, st);
}
int MPI_Mprobe(int s, int tag, MPI_Comm c, MPI_Message *m, MPI_Status *st) {
	int rc = 0;
	for (int flag = 0; !rc && !flag; sched_yield()) rc = MPI_Improbe(s, tag, c, &flag, m, st);
	return rc;
}
int MPI_Recv(void *b, int n, MPI_Datatype t, int s, int tag, MPI_Comm c, MPI_Status *st) {
	MPI_Message m;
	int rc = MPI_Mprobe(s, tag, c, &m, st);
	return rc ? rc : PMPI_Mrecv(b, n, t, &m, st);
}

int MPI_Comm_get_attr(MPI_Comm c, int key, void *value, int *found) {
	static int on;
	if (key != FT) return PMPI_Comm_get_attr(c, key, value, found);
	on = !getenv("ULFM_OFF");
	*(int **)value = &on;
	*found = 1;
	return 0;
}
int MPI_Error_class(int code, int *class) {
	if (code < FAILED || code > REVOKED) return PMPI_Error_class(code, class);
	*class = code;
	return 0;
}
int MPI_Error_string(int code, char *text, int *n) {
	if (code < FAILED || code > REVOKED) return PMPI_Error_string(code, text, n);
	*n = sprintf(text, code == REVOKED ? "MPI_ERR_REVOKED: Communication Object Revoked" : "MPI_ERR_PROC_FAILED: Process Failure");
	return 0;
}

static void make(const char *name) {
	char at[512];
	close(open(path(at, name), O_CREAT, 0600));
}

// made is the end of a call that made a communicator. All ranks but the first are slow to return.
static int made(int rc, MPI_Comm *c) {
	char name[64];
	int me;
	if (rc || *c == MPI_COMM_NULL) return rc;
	PMPI_Comm_rank(*c, &me);
	if (me) usleep(20000);
	snprintf(name, sizeof name, "made.%d.%d", number(*c), me);
	make(name);
	return 0;
}
int MPI_Comm_dup(MPI_Comm c, MPI_Comm *d) { return made(PMPI_Comm_dup(c, d), d); }
int MPI_Comm_create_group(MPI_Comm c, MPI_Group g, int tag, MPI_Comm *d) {
	return made(PMPI_Comm_create_group(c, g, tag, d), d);
}

// MPIX_Comm_revoke ends the job if a member is still in the call that makes c: Open MPI 5 crashes.
int MPIX_Comm_revoke(MPI_Comm c) {
	char name[64];
	int n;
	PMPI_Comm_size(c, &n);
	for (int r = 0; r < n; r++) {
		snprintf(name, sizeof name, "made.%d.%d", number(c), r);
		if (there(name, 0)) continue;
		fprintf(stderr, "revoked while rank %d is still in the call that makes the communicator\n", r);
		PMPI_Abort(MPI_COMM_WORLD, 9);
	}
	snprintf(name, sizeof name, "revoked.%d", number(c));
	make(name);
	return 0;
}
int MPIX_Comm_failure_ack(MPI_Comm c) {
	acked[number(c)] = lost(c);
	return 0;
}

// MPIX_Comm_agree waits for the vote of every member that is not lost. The name of a file is a vote, so that
// none is seen in part. A member that is lost after its vote is no failure yet: all members see that vote,
// since the losses are looked up before the votes.
int MPIX_Comm_agree(MPI_Comm c, int *flag) {
	int me, n, k = number(c), all, acks, now;
	PMPI_Comm_rank(c, &me);
	PMPI_Comm_size(c, &n);
	char name[64];
	snprintf(name, sizeof name, "%d.%d.%d.%d.%d", k, votes[k], me, acked[k], *flag);
	make(name);
	int seen;
	for (;; sched_yield()) {
		now = lost(c), seen = 0, all = acks = ~0;
		DIR *d = opendir(getenv("ULFM_DIR"));
		for (struct dirent *e; (e = readdir(d));) {
			int ek, et, er, ea, ef;
			if (sscanf(e->d_name, "%d.%d.%d.%d.%d", &ek, &et, &er, &ea, &ef) != 5 || ek != k || et != votes[k]) continue;
			seen |= 1 << er, acks &= ea, all &= ef;
		}
		closedir(d);
		if ((seen | now) == (1 << n) - 1) break;
	}
	votes[k]++;
	*flag = all;
	return now & ~seen & ~acks ? FAILED : 0;
}

static MPI_Group members(MPI_Comm c, int bits) {
	MPI_Group all, some;
	int n, m = 0, list[32];
	PMPI_Comm_group(c, &all);
	PMPI_Comm_size(c, &n);
	for (int r = 0; r < n; r++)
		if (bits >> r & 1) list[m++] = r;
	PMPI_Group_incl(all, m, list, &some);
	PMPI_Group_free(&all);
	return some;
}
static int asked;
int MPI_Finalize(void) {
	printf("asked %d\n", asked);
	fflush(stdout);
	return PMPI_Finalize();
}
int MPIX_Comm_get_failed(MPI_Comm c, MPI_Group *g) {
	asked++;
	*g = members(c, lost(c));
	return 0;
}
int MPIX_Comm_shrink(MPI_Comm c, MPI_Comm *d) {
	MPI_Group some = members(c, ~lost(c));
	int rc = MPI_Comm_create_group(c, some, 7000, d);
	PMPI_Group_free(&some);
	return rc;
}
