// Package exact adds floating-point numbers without rounding errors: the result is the exact sum, rounded once.
//
//	total, err := exact.Sum(world, xs)        // of the numbers of all ranks
//	cosine, err := exact.Dot(world, xs, ys)
//
//	a := exact.New[float32](len(gradient))    // elementwise sums of any number of slices
//	err = a.Add(gradient)
//	err = a.Allreduce(world, mean)            // the sums over all ranks
//
// # Results
//
// A result is the number of type T nearest to the exact sum; of two equally near, the one whose last bit is 0. So its bits
// depend on the multiset of the numbers alone. They do not depend on the order of the numbers, on how many ranks there
// are and which rank has which numbers, or on the backend. On mpi, Config.Deterministic is not needed.
//
// # Special values
//
// A NaN among the numbers, or infinities of both signs, give NaN, always with the bits of [math.NaN]. Infinities of one
// sign give that infinity. Subnormal numbers count like others. Partial sums do not overflow; a result beyond the
// largest number is infinite, where rounding to nearest makes it so. The sum of no numbers is +0, and so is one whose
// numbers cancel. It is -0 if all numbers are -0, as in IEEE 754. The products of Dot are exact too: they neither
// overflow nor underflow, and 0 times an infinity is NaN.
//
// # Errors
//
// Every error is a [cohort.OpError]. If the lengths of one rank do not fit together, that rank gets [cohort.ErrCount] and
// the others [cohort.ErrMismatch], which names it. The communicator stays usable. Other errors are those of [cohort.Allreduce].
//
// # Limits
//
// A result is correct for up to 2^48 numbers. A job has fewer than 2^20 ranks.
package exact
