// Package tasks runs a function over a stream of tasks on the ranks of a communicator. It suits work
// whose pieces take different times, such as images, files or scenarios: a rank gets its next task
// when it has done the one before.
//
//	for image, err := range tasks.Map(ctx, world, slices.Values(names), render) {
//		if err != nil {
//			return err
//		}
//		show(image) // on rank 0 only, in the order of names
//	}
//
// All ranks execute the loop. On rank 0 it takes the tasks from its sequence, hands them to the other
// ranks, and yields a result for each task. On the other ranks it runs the function, yields nothing,
// and ends when rank 0 has all results. If the communicator has one rank, that rank runs the function
// itself.
//
// Tasks and results are values that package values can send. A function without a result returns
// struct{}. Rank 0 keeps a few tasks and results for each rank, however long the sequence is.
//
// # Errors
//
// A task that fails, or panics, yields an [*Error], which names the task. The loop continues with the other
// tasks unless its body ends it. Any other error ends the loop.
//
// # Lost ranks
//
// If a rank other than 0 is lost, the others continue, and rank 0 hands the lost rank's task to another
// one. So a task may be run twice. This needs a backend that can Shrink a communicator. In a job that a
// launcher started it also needs Config.Resilient. After the loop use Shrink on the communicator, as after
// any loss.
package tasks
