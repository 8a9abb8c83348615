/*
 * mpibase OP [SIZE,...] [BATCHES]: what one operation takes in a C MPI library, measured as
 * cohort bench measures it. Rank 0 prints one JSON object per size with the fields of
 * cohort bench --json.
 *
 * A batch lasts about 20 ms (40 for p2p). The time of a call is the median over the batches
 * of the time of a batch over its calls: rank 0's for p2p (of which half, there and back being two
 * messages), the slowest rank's over the messages of all pairs for bw, the mean over the ranks for
 * the others.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IN_FLIGHT 64 /* messages that each pair of ranks has under way in one iteration of bw */

static const MPI_Comm world = MPI_COMM_WORLD;
static int rank, ranks;

/* What the calls of one size work on. */
static struct {
    int bytes, n; /* the message, in bytes and in doubles */
    double *send, *recv;
    int *counts, *displs;
    MPI_Request started; /* pallreduce */
    MPI_Win window;      /* shmwin */
    double *shared;
} b;

static void p2p(int calls)
{
    int peer = 1 - rank;
    if (rank > 1)
        return;
    for (int i = 0; i < calls; i++) {
        if (rank == 0)
            MPI_Send(b.send, b.bytes, MPI_BYTE, peer, 1, world);
        MPI_Recv(b.recv, b.bytes, MPI_BYTE, peer, 1, world, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(b.send, b.bytes, MPI_BYTE, peer, 1, world);
    }
}

/* Each rank of the lower half sends to one of the upper half. */
static void bw(int calls)
{
    MPI_Request q[IN_FLIGHT];
    int half = ranks / 2, sends = rank < half, peer = sends ? rank + half : rank - half;
    for (int i = 0; i < calls && rank < 2 * half; i++) {
        for (int k = 0; k < IN_FLIGHT; k++) {
            if (sends)
                MPI_Isend(b.send, b.bytes, MPI_BYTE, peer, 1, world, &q[k]);
            else
                MPI_Irecv(b.recv, b.bytes, MPI_BYTE, peer, 1, world, &q[k]);
        }
        MPI_Waitall(IN_FLIGHT, q, MPI_STATUSES_IGNORE);
        if (sends)
            MPI_Recv(b.recv, 1, MPI_BYTE, peer, 2, world, MPI_STATUS_IGNORE);
        else
            MPI_Send(b.send, 1, MPI_BYTE, peer, 2, world);
    }
}

static void allreduce(int calls)
{
    while (calls-- > 0)
        MPI_Allreduce(b.send, b.recv, b.n, MPI_DOUBLE, MPI_SUM, world);
}

static void allgatherv(int calls)
{
    while (calls-- > 0)
        MPI_Allgatherv(b.send, b.n, MPI_DOUBLE, b.recv, b.counts, b.displs, MPI_DOUBLE, world);
}

static void bcast(int calls)
{
    while (calls-- > 0)
        MPI_Bcast(b.send, b.n, MPI_DOUBLE, 0, world);
}

static void barrier(int calls)
{
    while (calls-- > 0)
        MPI_Barrier(world);
}

static void iallreduce(int calls)
{
    MPI_Request q;
    while (calls-- > 0) {
        MPI_Iallreduce(b.send, b.recv, b.n, MPI_DOUBLE, MPI_SUM, world, &q);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
    }
}

static void pallreduce(int calls)
{
    while (calls-- > 0) {
        MPI_Start(&b.started);
        MPI_Wait(&b.started, MPI_STATUS_IGNORE);
    }
}

/* Rank 0 writes the window and all read it. */
static void shmwin(int calls)
{
    while (calls-- > 0) {
        if (rank == 0)
            memcpy(b.shared, b.send, b.bytes);
        MPI_Win_fence(0, b.window);
        memcpy(b.recv, b.shared, b.bytes);
        MPI_Win_fence(0, b.window);
    }
}

static const struct op {
    const char *name;
    void (*batch)(int calls);
    int messages; /* of one call of a pair of ranks, 0 of a collective */
} ops[] = {
    {"p2p", p2p, 2},         {"bw", bw, IN_FLIGHT}, {"allreduce", allreduce, 0},
    {"allgatherv", allgatherv, 0}, {"bcast", bcast, 0},   {"barrier", barrier, 0},
    {"iallreduce", iallreduce, 0}, {"pallreduce", pallreduce, 0}, {"shmwin", shmwin, 0},
};

static void *pages(size_t bytes)
{
    bytes = (bytes + 4096) / 4096 * 4096;
    void *p = aligned_alloc(4096, bytes);
    if (!p)
        MPI_Abort(world, 1);
    return memset(p, 0, bytes);
}

static void prepare(const struct op *op, int bytes)
{
    b.bytes = bytes;
    b.n = bytes / 8;
    b.send = pages(bytes);
    b.recv = pages(op->batch == allgatherv ? (size_t)bytes * ranks : (size_t)bytes);
    b.counts = pages(ranks * sizeof(int));
    b.displs = pages(ranks * sizeof(int));
    for (int r = 0; r < ranks; r++) {
        b.counts[r] = b.n;
        b.displs[r] = b.n * r;
    }
    if (op->batch == pallreduce) {
#if MPI_VERSION >= 4
        MPI_Allreduce_init(b.send, b.recv, b.n, MPI_DOUBLE, MPI_SUM, world, MPI_INFO_NULL, &b.started);
#endif
    }
    if (op->batch == shmwin) {
        MPI_Aint size;
        int unit;
        MPI_Win_allocate_shared(rank ? 0 : bytes, 8, MPI_INFO_NULL, world, &b.shared, &b.window);
        MPI_Win_shared_query(b.window, 0, &size, &unit, &b.shared);
        MPI_Win_fence(0, b.window);
    }
}

static void release(const struct op *op)
{
    if (op->batch == pallreduce)
        MPI_Request_free(&b.started);
    if (op->batch == shmwin)
        MPI_Win_free(&b.window);
    free(b.send);
    free(b.recv);
    free(b.counts);
    free(b.displs);
}

/* The messages in one call of all pairs, 1 for a collective. */
static int messages(const struct op *op)
{
    return op->batch == bw ? op->messages * (ranks / 2) : op->messages ? op->messages : 1;
}

/* Microseconds of one message or collective in a batch, on this rank. */
static double timed(const struct op *op, int calls)
{
    MPI_Barrier(world);
    double start = MPI_Wtime();
    op->batch(calls);
    return (MPI_Wtime() - start) * 1e6 / calls / messages(op);
}

static int ascending(const void *x, const void *y)
{
    double a = *(const double *)x, c = *(const double *)y;
    return (a > c) - (a < c);
}

/* Takes the library's name and version from its text: "Open MPI v4.1.4", "MPICH 4.0.2". */
static void name_library(char *name)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING], version[64];
    int length;
    MPI_Get_library_version(text, &length);
    if (sscanf(text, "MPICH Version: %40s", version) == 1)
        sprintf(name, "MPICH %s", version);
    else
        sprintf(name, "%.*s", (int)strcspn(text, ",\n\t\"\\"), text);
}

/* The median over the batches, on rank 0. */
static double measure(const struct op *op, int batches)
{
    timed(op, 4); /* the first calls set things up */
    double once = timed(op, 4);
    double wish = 20e3 / (once > 0.05 ? once : 0.05) / (op->batch == bw ? messages(op) : 1);
    int calls = wish < 2 ? 2 : wish > 100000 ? 100000 : (int)wish;
    MPI_Bcast(&calls, 1, MPI_INT, 0, world);
    timed(op, calls / 2 + 1);

    double *times = pages(batches * sizeof *times);
    for (int k = 0; k < batches; k++) {
        double mine = timed(op, calls), all = 0;
        MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, op->batch == bw ? MPI_MAX : MPI_SUM, 0, world);
        times[k] = op->batch == bw ? all : op->messages ? mine : all / ranks;
    }
    qsort(times, batches, sizeof *times, ascending);
    double median = times[batches / 2];
    free(times);
    return median;
}

enum { TRIPS = 5000, BURSTS = 3 };
static _Alignas(128) atomic_uint line[32]; /* the first word shares its cache line with nothing else */

static void *answer(void *unused)
{
    for (unsigned i = 0; i < BURSTS * TRIPS; i++) {
        while (atomic_load_explicit(line, memory_order_acquire) != 2 * i + 1)
            ;
        atomic_store_explicit(line, 2 * i + 2, memory_order_release);
    }
    return unused;
}

/*
 * Nanoseconds that a cache line takes from the processor of rank 0 to that of rank 1, as cohort bench
 * measures them: by two threads of rank 0, in the fastest of three bursts, while other ranks sleep.
 * 0 if the two have one processor, or if rank 0 may not use the other.
 */
static double handover(void)
{
    int mine = sched_getcpu(), *cpus = pages(ranks * sizeof mine);
    MPI_Allgather(&mine, 1, MPI_INT, cpus, 1, MPI_INT, world);
    double fastest = 0;
    cpu_set_t before, one, other;
    pthread_attr_t there;
    pthread_t thread;
    pthread_attr_init(&there);
    if (rank > 0)
        usleep(20000);
    else if (ranks > 1 && cpus[0] != cpus[1] && !pthread_getaffinity_np(pthread_self(), sizeof before, &before)) {
        CPU_ZERO(&one);
        CPU_SET(cpus[0], &one);
        CPU_ZERO(&other);
        CPU_SET(cpus[1], &other);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        pthread_attr_setaffinity_np(&there, sizeof other, &other);
        line[0] = 0;
        if (!pthread_create(&thread, &there, answer, NULL)) {
            unsigned next = 0;
            for (int k = 0; k < BURSTS; k++) {
                double start = MPI_Wtime();
                for (int i = 0; i < TRIPS; i++, next += 2) {
                    while (atomic_load_explicit(line, memory_order_acquire) != next)
                        ;
                    atomic_store_explicit(line, next + 1, memory_order_release);
                }
                double ns = (MPI_Wtime() - start) * 1e9 / (2 * TRIPS);
                fastest = k == 0 || ns < fastest ? ns : fastest;
            }
            pthread_join(thread, NULL);
        }
        pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    }
    pthread_attr_destroy(&there);
    free(cpus);
    MPI_Barrier(world);
    return fastest;
}

/* The thread level that COHORT_MPI_THREAD names; the lowest without it. */
static int level(void)
{
    static const struct { const char *name; int level; } levels[] = {
        {"single", MPI_THREAD_SINGLE}, {"funneled", MPI_THREAD_FUNNELED},
        {"serialized", MPI_THREAD_SERIALIZED}, {"multiple", MPI_THREAD_MULTIPLE},
    };
    const char *want = getenv("COHORT_MPI_THREAD");
    for (size_t i = 0; want && i < sizeof levels / sizeof *levels; i++)
        if (!strcmp(want, levels[i].name))
            return levels[i].level;
    return MPI_THREAD_SINGLE;
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, level(), &provided);
    if (provided < level()) {
        fprintf(stderr, "mpibase: the library does not give this thread level\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &ranks);

    const struct op *op = NULL;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (argc > 1 && !strcmp(argv[1], ops[i].name))
            op = &ops[i];
    int batches = argc > 3 ? atoi(argv[3]) : 15;
    if (!op || batches < 1 || (op->messages && ranks < 2)) {
        fprintf(stderr, "usage: mpibase OP [SIZE,...] [BATCHES]; p2p and bw want two ranks\n");
        MPI_Abort(world, 2);
    }
    if (op->batch == pallreduce && MPI_VERSION < 4) {
        fprintf(stderr, "mpibase: this library has no persistent collectives (MPI %d)\n", MPI_VERSION);
        MPI_Abort(world, 3);
    }
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    name_library(library);

    char *sizes = strdup(op->batch == barrier ? "0" : argc > 2 ? argv[2] : "8,64,1024,8192,65536,1048576,4194304");
    for (char *s = strtok(sizes, ","); s; s = strtok(NULL, ",")) {
        double ns = handover();
        prepare(op, atoi(s));
        double usec = measure(op, batches);
        if (rank == 0) {
            printf("{\"op\":\"%s\",\"impl\":\"c\",\"lib\":\"%s\",\"ranks\":%d,\"bytes\":%d,\"usec\":%.4f,\"gbps\":%.4f,\"handover_ns\":%.0f}\n",
                   op->name, library, ranks, b.bytes, usec, b.bytes / usec / 1e3, ns);
            fflush(stdout);
        }
        release(op);
    }
    free(sizes);
    MPI_Finalize();
    return 0;
}
