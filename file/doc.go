// Package file reads and writes one file on all ranks of a communicator.
//
//	f, err := file.Open(world, "heat.bin", os.O_RDWR|os.O_CREATE, 0o644)
//	_, err = f.WriteAtAll(file.Bytes(mine), off)              // each rank a block
//	rows := cohort.Vector(n, width, width*world.Size())       // each rank every Size-th row
//	err = file.WriteView(f, mine, int64(8*width*world.Rank()), rows)
//	err = file.WriteNpy(f, mine, sizes, subsizes, starts)     // what numpy.load reads
//	err = f.Close()
//
// The file is an ordinary one, with the bytes that the ranks write and nothing else. Every host must have it
// under the same name.
//
// # Collective and independent operations
//
// [File.ReadAt] and [File.WriteAt] are those of an *os.File. All other operations that read or write are
// collective. The ranks' pieces may be short and lie between each other, such as rows of a table that are dealt to
// the ranks. A few ranks of each node then read and write long blocks for all. Long pieces are read and written
// by their own ranks.
//
// For the blocks, a node needs 4.5 MiB of memory that its ranks share, and 36 MiB if the ranks are on several
// nodes. This memory is kept until Close. A rank needs 32 bytes for each piece that is not one of several of the
// same length at the same distance, and 16 more while a window contains it. A layout whose blocks are not ascending
// needs another 24 bytes for each block, and as much again as the buffer.
//
// A byte that no rank writes is never written, not even with its old value.
//
// # What other ranks see
//
// A rank sees what others have written once a later collective operation has returned. This holds on the file
// systems of a host, and on those of clusters that follow POSIX. On NFS call [File.Sync], close the file, and open it
// again. If a rank dies, what it has written stays. If a host dies, only what was written before a Sync is sure to
// be on the disk.
//
// # Errors
//
// A failure is an [*Error] that names the operation, the file, the rank, the bytes, and the cause.
// A collective operation returns the failures of all ranks on all ranks. So when the disk is full, every rank
// knows which bytes are missing; all others are written. errors.Is finds a cause of the system:
// errors.Is(err, syscall.ENOSPC), errors.Is(err, fs.ErrNotExist).
//
// Wrong arguments on one rank are [cohort.ErrMismatch] on the others, and nothing is read or written. The file
// stays usable after these errors, but not after the loss of a rank or a deadline. The error then names all bytes of
// the operation, or this rank's bytes if the ranks have not exchanged yet what they call. Later collective operations
// return [cohort.ErrBroken]; ReadAt, WriteAt and Close still work.
package file
