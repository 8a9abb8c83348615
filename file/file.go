package file

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// File is a file that all ranks of a communicator have open. ReadAt, WriteAt and Size may be called by any
// number of goroutines at once. Collective operations run one at a time; a second one is [cohort.ErrBusy].
type File struct {
	c *cohort.Comm
	*shared
}

// shared is what all handles of a file share.
type shared struct {
	file    *os.File
	path    string
	writers []int // the ranks that read and write for the others
	near    []int // those of this rank's node
	most    int   // the largest number of writers of a node
	nodes   bool  // the ranks are on several nodes

	busy   sync.Mutex // held by collective operations
	closed bool       // guarded by busy
	memory memory     // guarded by busy
}

// Open opens a file on all ranks of c, as [os.OpenFile] does. Rank 0 creates or truncates it if flag says so,
// and then the others open it. All hosts must have the file under this name. perm applies once all ranks
// have opened a new file: until then its owner may open it as flag says.
//
// Collective: all ranks of c call it with the same name, flag and perm.
//
// Errors: on every rank an [*Error] for each rank that could not open the file; [fs.ErrInvalid] for
// os.O_APPEND (use [File.AppendAll]) and for a named pipe; those of [cohort.Comm.Dup].
//
// Deadline: as for [cohort.Comm.Dup], for the other ranks: a call of the system, also in later operations, takes as
// long as the system takes. The context of c also applies to the operations on the file.
func Open(c *cohort.Comm, name string, flag int, perm fs.FileMode) (*File, error) {
	d, err := c.Dup()
	if err != nil {
		return nil, err
	}
	var bad error
	if flag&os.O_APPEND != 0 {
		bad = fmt.Errorf("%w: flag has O_APPEND; use AppendAll", fs.ErrInvalid)
	} else if st, err := os.Stat(name); err == nil && st.Mode()&fs.ModeNamedPipe != 0 { // to open it waits for the other end
		bad = fmt.Errorf("%w: this is a named pipe, which has no offsets", fs.ErrInvalid)
	}
	h := fnv.New64a()
	fmt.Fprint(h, flag, perm, name)
	m := &agreement{d, name, opOpen}
	var f *os.File
	restore := func() {}
	_, _, err = m.begin(call{Arg: int64(h.Sum64())}, bad, nil)
	for first := 0; first < 2 && err == nil; first++ {
		var wrong error
		if (first == 0) == (d.Rank() == 0) {
			f, wrong = os.OpenFile(name, flag, perm)
		}
		if first == 0 && f != nil && flag&os.O_CREATE != 0 {
			restore = permitOpen(f, flag)
		}
		err = m.end(0, 0, m.fault(0, 0, wrong))
		flag &^= os.O_CREATE | os.O_EXCL | os.O_TRUNC
	}
	restore()
	if err != nil {
		f.Close()
		d.Close()
		return nil, err
	}
	s := &shared{file: f, path: name}
	s.place(d.Rank(), d.Topology().Hosts)
	return &File{d, s}, nil
}

// permitOpen lets this user open a file again by its name, although the permissions with which it was created, such as
// 0o444 for writing, do not. restore takes that back. If it is not possible, the other ranks cannot open the file.
func permitOpen(f *os.File, flag int) (restore func()) {
	need := map[int]fs.FileMode{os.O_RDONLY: 0o400, os.O_WRONLY: 0o200, os.O_RDWR: 0o600}[flag&(os.O_WRONLY|os.O_RDWR)]
	st, err := f.Stat()
	if err != nil || st.Mode()&need == need || f.Chmod(st.Mode()|need) != nil {
		return func() {}
	}
	return func() { _ = f.Chmod(st.Mode()) } // if it fails, the owner keeps a permission that was not asked for
}

// opened reports whether Open has made f. A nil or zero File is no open file.
func (f *File) opened() bool { return f != nil && f.shared != nil }

// os returns the open file, nil if there is none.
func (f *File) os() *os.File {
	if !f.opened() {
		return nil
	}
	return f.file
}

// on returns the agreement on an operation. It has no ranks if there is no open file.
func (f *File) on(o op) *agreement {
	if !f.opened() {
		return &agreement{op: o}
	}
	return &agreement{f.c, f.path, o}
}

// Name returns the name that was given to [Open].
//
// Not collective.
func (f *File) Name() string { return f.on(opOpen).path }

// WithContext returns a handle of the same file whose collective operations end when ctx does, as
// [cohort.Comm.WithContext] describes. An operation that ctx ends breaks the file: later ones
// are [cohort.ErrBroken].
//
// Not collective.
func (f *File) WithContext(ctx context.Context) *File {
	if !f.opened() {
		return f
	}
	return &File{f.c.WithContext(ctx), f.shared}
}

// ReadAt reads len(p) bytes from offset off on, as [io.ReaderAt] says. At the end of the file it returns
// [io.EOF].
//
// Not collective.
//
// Errors: an [*Error] with the bytes that were not read.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.os().ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = f.on(opReadAt).fault(off+int64(n), int64(len(p)-n), err)
	}
	return n, err
}

// WriteAt writes p from offset off on, as [io.WriterAt] says. If ranks write the same byte at the same time,
// one of them wins.
//
// Not collective.
//
// Errors: an [*Error] with the bytes that were not written.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.os().WriteAt(p, off)
	if err != nil {
		err = f.on(opWriteAt).fault(off+int64(n), int64(len(p)-n), err)
	}
	return n, err
}

// Size returns the length of the file in bytes.
//
// Not collective.
func (f *File) Size() (int64, error) {
	st, err := f.os().Stat()
	if err != nil {
		return 0, f.on(opSize).fault(0, 0, err)
	}
	return st.Size(), nil
}

// enter begins a collective operation, which ends with busy.Unlock.
func (f *File) enter(o op) (*agreement, error) {
	m := f.on(o)
	if !f.opened() {
		return nil, m.fault(0, 0, fs.ErrInvalid)
	}
	if !f.busy.TryLock() {
		return nil, m.fault(0, 0, backend.Faultf(cohort.ErrBusy, "another goroutine of this rank is in a collective operation on the file"))
	}
	return m, nil
}

// each is a collective operation that runs do on rank 0, or with nodes on the first rank of each node. arg is the same
// on all ranks.
func (f *File) each(o op, arg int64, bad error, nodes bool, do func() error) error {
	m, err := f.enter(o)
	if err != nil {
		return err
	}
	defer f.busy.Unlock()
	if _, _, err := m.begin(call{Arg: arg}, bad, nil); err != nil {
		return err
	}
	if f.c.Rank() == 0 || nodes && f.c.Rank() == f.near[0] {
		err = do()
	}
	return m.end(0, 0, m.fault(0, 0, err))
}

// checkLength returns an error if n cannot be the length of a file.
func checkLength(n int64) error {
	if n < 0 {
		return backend.Faultf(cohort.ErrCount, "a length of %d bytes; want 0 or more", n)
	}
	return nil
}

// SetSize changes the length of the file to n bytes. Bytes that it adds are 0 and take no room on the disk.
//
// Collective: all ranks call it with the same n.
//
// Errors: on every rank, [cohort.ErrCount] for a negative n; those of [os.File.Truncate].
func (f *File) SetSize(n int64) error {
	return f.each(opSetSize, n, checkLength(n), false, func() error { return f.file.Truncate(n) })
}

// Preallocate reserves room on the disk for the first n bytes of the file, so that writing them does not fail for
// lack of it. A shorter file gets this length, and bytes that it adds are 0.
//
// Collective: all ranks call it with the same n.
//
// Errors: on every rank, [cohort.ErrCount] for a negative n; those of the file system, such as a full disk;
// [cohort.ErrNotSupported] on systems other than Linux.
func (f *File) Preallocate(n int64) error {
	return f.each(opPreallocate, n, checkLength(n), false, func() error { return preallocate(f.file, n) })
}

// Sync returns when everything that any rank has written before is on the disk.
//
// Collective: all ranks call it.
//
// Errors: those of [os.File.Sync], on every rank.
func (f *File) Sync() error {
	return f.each(opSync, 0, nil, true, func() error { return f.file.Sync() })
}

// Close closes the file. Closing it again, or closing a nil or zero File, does nothing.
//
// Collective: all ranks call it. If the others are in another operation, all get [cohort.ErrMismatch], and the file can
// only be closed.
//
// Errors: on every rank, those that the file system reports only now, such as a full disk. The file is closed in any
// case, also if a rank is lost.
func (f *File) Close() error {
	if !f.opened() {
		return nil
	}
	m, err := f.enter(opClose)
	if err != nil {
		return err
	}
	defer f.busy.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	_, _, err = m.begin(call{}, nil, nil)
	wrong := m.fault(0, 0, f.file.Close())
	switch {
	case err == nil:
		err = m.end(0, 0, wrong)
	case errors.Is(err, cohort.ErrClosed) && wrong == nil: // another rank has closed the file before
		err = nil
	case wrong != nil:
		err = errors.Join(err, wrong)
	}
	f.memory.region.Close()
	f.memory = memory{}
	f.c.Close()
	return err
}
