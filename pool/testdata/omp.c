/* Measures what a parallel loop costs with OpenMP, for bench_test.go:
 *
 *     omp THREADS TASKS SPIN CALLS
 *
 * makes CALLS loops of TASKS tasks, each busy for SPIN nanoseconds, on THREADS threads, and prints the
 * nanoseconds one takes. It does so once for every line it reads, so that the measurements of two
 * programs can take turns. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e9 * t.tv_sec + t.tv_nsec;
}

static void task(int i, double spin)
{
	if (spin > 0)
		for (double end = now() + spin; now() < end;)
			;
	__asm__ volatile("" : : "r"(i) : "memory"); /* the loop is not to be left out */
}

int main(int argc, char **argv)
{
	char line[16];

	if (argc != 5)
		return 2;
	int threads = atoi(argv[1]), tasks = atoi(argv[2]);
	double spin = atof(argv[3]);
	long calls = atol(argv[4]);
	omp_set_num_threads(threads);
	while (fgets(line, sizeof line, stdin)) {
		double begin = now();
		for (long c = 0; c < calls; c++) {
#pragma omp parallel for schedule(dynamic)
			for (int i = 0; i < tasks; i++)
				task(i, spin);
		}
		printf("%.1f\n", (now() - begin) / calls);
		fflush(stdout);
	}
	return 0;
}
