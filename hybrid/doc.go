// Package hybrid gives each rank of a job several threads: a pool of workers on its part of the
// processors that it shares with other ranks of its node.
//
//	func main() { cohort.Main(body) }
//
//	func body(_ context.Context, world *cohort.Comm) error {
//		env, err := hybrid.Join(world, &hybrid.Config{Threads: 8, Pin: pool.Cores, Summary: os.Stderr})
//		…
//		err = pool.ForEach(env.Pool, len(mine), func(worker, i int) error { … })
//		err = cohort.Allreduce(world, sums, sums, cohort.Sum)
//		…
//		return env.Close()
//	}
//
// # The steps
//
// [Start] takes the steps in this order. [Env.Close] undoes them in reverse:
//
//  1. backend: [cohort.Init].
//  2. topology: where the ranks run ([cohort.Comm.Topology]), and what this node
//     offers to this process ([topo.Here]).
//  3. node communicator: the ranks of this node exchange the processors that they may
//     use and the number of threads that they want.
//  4. thread pool: the workers start on the rank's part of the processors that it
//     shares with other ranks of its node.
//  5. solver threads: variables are set that keep solver libraries from starting
//     threads ([pool.QuietSolvers]).
//  6. NUMA policy: each pinned worker has set it when it started, so that its memory
//     comes from the domain where it runs. This step checks that.
//  7. workspaces: each worker makes its workspace on its thread, and so in its memory.
//  8. summary: rank 0 writes one line.
//
// In a single process without a launcher, steps 1 to 3 find one rank; the others are
// the same. [Join] takes steps 2 to 8 for an existing communicator.
//
// # When a step fails
//
// After each step that can fail on one rank alone, the ranks exchange whether it
// failed. If it failed on one rank, Start and Join fail on all, with a [StepError] that
// names the step and the rank, and undo the steps taken.
package hybrid
