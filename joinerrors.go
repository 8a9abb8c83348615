package cohort

// JoinErrors tells all ranks whether one of them has an error. It returns nil on every rank if err
// is nil on all of them. Otherwise every rank gets an error that names the lowest rank whose err is
// not nil. It has the text of that err, 4 KiB at most, and wraps the same sentinel or
// [syscall.Errno]. A rank whose own err is not nil gets that too: errors.Is and errors.As find it.
//
// Ranks that check something alone, such as an input file, use it to stop together:
//
//	err := cohort.JoinErrors(world, load(path))
//
// Collective: an Allreduce, and if a rank has an error, a Bcast and a Barrier. So all ranks know
// the error before one returns.
//
// Errors: those of Allreduce, Bcast and Barrier, joined with err.
//
// Deadline: as for [Allreduce].
func JoinErrors(c *Comm, err error) error { return c.base().Join(err) }
