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
// collective. If the pieces of the ranks are short, such as rows of a table that are dealt to the ranks, a
// few ranks of each node read and write long blocks for all, and exchange the pieces with the others. Long
// pieces are read and written by their own ranks. An exchange needs up to 9 MiB on each rank that writes for
// others, and 16 bytes for each piece that is not one of several of the same length at the same distance. Such
// memory is kept until Close. A layout whose blocks are not ascending needs as much again as the buffer.
//
// A byte that no rank writes is never written, also not with its old value.
//
// # What other ranks see
//
// On a file system of one host, and on those of clusters that keep the rules of POSIX, ranks see what others
// have written once an operation that all of them call has returned after it. On NFS call [File.Sync], close the file,
// and open it again. What a rank that dies has written before stays written; what a host that dies has written is
// on the disk only after Sync.
//
// # Errors
//
// A failure is an [*Error] that names the operation, the file, the rank that met it, the bytes, and the cause.
// A collective operation returns the failures of all ranks on all ranks. So when the disk is full, every rank
// knows which bytes are not written, and the others are. Causes of the system can be compared:
// errors.Is(err, syscall.ENOSPC), errors.Is(err, fs.ErrNotExist).
//
// Wrong arguments on one rank are [cohort.ErrMismatch] on the others, and nothing is read or written. The file
// stays usable after these errors. It does not after the loss of a rank or a deadline: the error then
// names all bytes of the operation, later collective operations are [cohort.ErrBroken], and ReadAt, WriteAt and
// Close still work.
package file
