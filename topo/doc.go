// Package topo describes the node a process runs on, as far as the process may use it, and the job,
// as far as launcher and scheduler describe it. It also divides a node's processors among the ranks
// and threads that run there.
//
//	node, err := topo.Here()                  // packages, cores, NUMA domains, caches, limits
//	job := topo.ThisJob()                     // Slurm, PBS, Flux; srun and the launchers of MPI
//	plan, err := node.Plan(4, 8, topo.Cores)  // processors for 8 threads of each of 4 ranks
//
// # Usable processors
//
// A processor is usable if it is online, in the affinity mask of the process, and in the cpuset of
// its control group. CPUs, Cores, Packages, and the processors of a Domain or a Cache include only
// usable ones. Limits are the lowest of all control groups above the process, of version 1 and 2.
//
// # Unknown values
//
// A value that cannot be read is absent and never guessed: a size or a count is 0, a text is empty,
// a list is nil, and a rank, which may be 0, is -1. Fields document exceptions. A variable with an
// invalid value counts as absent and is listed in [Job.Problems].
//
// # The line at the start of a job
//
// A [Summary] is that line. A communicator fills in where its ranks run and over which library. A
// program that pins threads adds these:
//
//	s := world.Topology().Summary() // of package cohort
//	s.Threads, s.Policy, s.Sets = plan.Threads, plan.Policy, plan.Sets[0]
//	s.Notes = append(s.Notes, plan.Note())
//	fmt.Println(s)
//
// The package imports nothing of cohort and starts nothing. Its values are plain data, which many
// goroutines may read at once. A method of a nil pointer panics, as reading a field does.
package topo
