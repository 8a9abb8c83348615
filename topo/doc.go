// Package topo describes what a process runs on: the node, as far as this process may
// use it, and the job, as far as launcher and scheduler describe it; and it shares
// a node's processors out among the ranks and threads that run there.
//
//	node, err := topo.Here()                     // packages, cores, NUMA domains, caches, limits
//	job := topo.ThisJob()                        // Slurm, PBS, Flux; srun and the launchers of MPI
//	sets, err := node.Share(0, 4, 8, topo.Cores) // processors for 8 threads of rank 0 of 4
//
// # What counts
//
// A processor counts if it is online, in the affinity mask of the process and in
// the cpuset of its control group: CPUs, Cores, Packages and the processors of a
// Domain or a Cache are the usable ones only. Limits are the lowest of all control
// groups above the process, of version 1 and 2.
//
// # What is not known
//
// What cannot be read is absent and never guessed: a size or a count is 0, a text
// is empty, a list is nil, and a rank, which may be 0, is -1. The fields say it
// where something else holds. A variable that is there and makes no sense is
// absent as well, and listed in [Job.Problems].
//
// # The line at the start of a job
//
// A [Summary] is that line. A communicator fills in what it knows, where the ranks
// run and over which library, and a program that pins threads adds these:
//
//	s := world.Topology().Summary() // of package cohort
//	s.Threads, s.Policy, s.Sets = plan.Threads, plan.Policy, plan.Sets[0]
//	s.Notes = append(s.Notes, plan.Note())
//	fmt.Println(s)
//
// The package imports nothing of cohort and starts nothing; its values are plain
// data, which may be read by many goroutines at once.
package topo
