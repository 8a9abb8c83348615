// Package hybrid starts programs that run ranks times threads: it joins the job,
// finds out what the ranks of a node share, and gives each rank its workers, pinned
// to its part of the node.
//
//	env, err := hybrid.Start(ctx, &hybrid.Config{Threads: 8, Pin: pool.Cores, Summary: os.Stderr})
//	defer env.Close()
//	err = pool.ForEach(env.Pool, len(mine), func(worker, i int) error { … })
//	err = cohort.Allreduce(env.World, sums, sums, cohort.Sum)
//
// # The steps
//
// [Start] takes them in this order, and [Env.Close] takes them back in reverse:
//
//  1. backend: [cohort.Init];
//  2. topology: where the ranks run ([cohort.Comm.Topology]), and what this node has
//     for this process ([topo.Here]);
//  3. node communicator: the ranks of this node, which tell each other the processors
//     they may use and how many threads they want;
//  4. thread pool: as many workers as are asked for, on the rank's part of the
//     processors that it shares with others of its node;
//  5. solver threads: the variables that keep solver libraries from starting threads
//     of their own ([pool.QuietSolvers]);
//  6. NUMA policy: that workers take memory from the domain they run in, which each
//     worker that is pinned has said when it started; here it is checked;
//  7. workspaces: one per worker, made on its thread and so in its memory;
//  8. summary: one line on rank 0.
//
// In one process without a launcher steps 1 to 3 find one rank, and the rest is the
// same. [Join] takes steps 2 to 8 for a communicator that is there already.
//
// # When a step fails
//
// The steps that can fail on one rank alone end with all ranks telling each other how
// it went. If it failed on one, Start fails on all, with a [StepError] that names the
// step and the rank, and what had been done is taken back.
package hybrid
