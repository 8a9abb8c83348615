package file

import (
	"io"
	"math"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Bytes returns the memory of s, so that f.WriteAtAll(file.Bytes(s), off) writes numbers as this machine stores
// them, and f.ReadAtAll(file.Bytes(s), off) reads them.
func Bytes[T cohort.Number](s []T) []byte { return view.Bytes(s) }

// ReadAtAll reads len(p) bytes from offset off on. It returns how many bytes it has read, and [io.EOF] if the file
// ends before the last of them. A file whose length the system gives as 0, such as a device or one of /proc, ends at
// once.
//
// Collective: all ranks call it, each with its own p and off. Their parts of the file may overlap. A rank may have read
// its bytes before another one calls it. So ranks that read what one has written with WriteAt synchronize in between.
//
// Errors: on every rank, an [*Error] for each rank that failed; [cohort.ErrCount] for a negative offset, and
// [cohort.ErrMismatch] on the other ranks. io.EOF is returned only to ranks whose bytes are missing.
//
// Deadline: as for other collectives. The file is broken afterwards.
func (f *File) ReadAtAll(p []byte, off int64) (int, error) {
	r, err := blockAt(off, int64(len(p)))
	n, err := f.transfer(opReadAtAll, p, r, 0, err)
	if err != nil && err != io.EOF {
		n = 0
	}
	return int(n), err
}

// WriteAtAll writes p from offset off on. It returns len(p), or 0 if there is an error.
//
// Collective: all ranks call it, each with its own p and off. If their parts of the file overlap, the bytes of one
// of them remain. A rank may have written its bytes before another one calls it.
//
// Errors: on every rank, an [*Error] for each rank that failed, with the bytes that are not written;
// [cohort.ErrCount] for a negative offset, and [cohort.ErrMismatch] on the other ranks.
//
// Deadline: as for other collectives. The file is broken afterwards.
func (f *File) WriteAtAll(p []byte, off int64) (int, error) {
	r, err := blockAt(off, int64(len(p)))
	if _, err = f.transfer(opWriteAtAll, p, r, 0, err); err != nil {
		return 0, err
	}
	return len(p), nil
}

// AppendAll writes the p of all ranks after the end of the file, in rank order. It returns the offset at which
// this rank's p begins.
//
// Collective: all ranks call it. Nothing else changes the length of the file at the same time.
//
// Errors and deadline: as for [File.WriteAtAll]; [cohort.ErrCount] on every rank, and nothing is written, if the file
// would be longer than the last offset allows.
func (f *File) AppendAll(p []byte) (off int64, err error) {
	r, _ := blockAt(0, int64(len(p)))
	return f.transfer(opAppendAll, p, r, 0, nil)
}

// ReadView reads the elements that a layout chooses. Displacement 0 of the layout is byte off of the file. buf[i]
// receives element i of the layout, as this machine stores it.
//
// Collective: all ranks call it, each with its own layout, offset and type.
//
// Buffers: buf is as long as the layout has elements.
//
// Errors: those of [File.ReadAtAll], but [io.ErrUnexpectedEOF] if the file ends before the last element, and
// elements beyond its end are not changed; [cohort.ErrCount] for a wrong layout, or a buf of another length;
// [cohort.ErrType].
//
// Deadline: as for [File.ReadAtAll].
func ReadView[T any](f *File, buf []T, off int64, l cohort.Layout) error {
	return transferView(f, opReadView, buf, off, l, 0, nil)
}

// WriteView writes buf to the elements that a layout chooses, as [ReadView] reads them. Bytes between them are not
// written.
//
// Collective, buffers: as for ReadView.
//
// Errors: those of [File.WriteAtAll]; [cohort.ErrCount] for a wrong layout, or a buf of another length;
// [cohort.ErrType].
//
// Deadline: as for [File.WriteAtAll].
func WriteView[T any](f *File, buf []T, off int64, l cohort.Layout) error {
	return transferView(f, opWriteView, buf, off, l, 0, nil)
}

// transferView moves the elements of buf from or to a layout in the file.
func transferView[T any](f *File, o op, buf []T, off int64, l cohort.Layout, arg int64, bad error) error {
	var r region
	if bad == nil {
		r, bad = viewRegion(buf, off, l)
	}
	var raw []byte
	if bad == nil {
		raw = view.Bytes(buf)
	}
	_, err := f.transfer(o, raw, r, arg, bad)
	return err
}

// viewRegion returns the region of a layout in the file, for the elements of buf.
func viewRegion[T any](buf []T, off int64, l cohort.Layout) (r region, err error) {
	size, err := cohort.SizeOf[T]()
	if err == nil {
		err = l.Err()
	}
	if err == nil && l.Len() != len(buf) {
		err = backend.Faultf(cohort.ErrCount, "buf has %d elements, the layout %d; want equally many", len(buf), l.Len())
	}
	if err == nil {
		_, err = blockAt(off, 0)
	}
	if err != nil {
		return r, err
	}
	return regionOf(l, off, int64(size))
}

// blockAt is the region of n bytes from an offset on.
func blockAt(off, n int64) (r region, err error) {
	switch {
	case off < 0:
		err = backend.Faultf(cohort.ErrCount, "the offset is %d; want 0 or more", off)
	case off > math.MaxInt64-n:
		err = backend.Faultf(cohort.ErrCount, "%d bytes from offset %d on end after the last offset that a file can have", n, off)
	case n > 0:
		r.add(off, n)
	}
	return r, err
}

// transfer moves buf to or from a region of the file on all ranks. It returns how many of the bytes are in the file when
// it reads, and the offset when it appends.
//
//  1. Describe this rank's call, and put the bytes into the order of their offsets.
//  2. Move the bytes at once if that needs no other rank.
//  3. Agree on the calls of all ranks. If all have moved their bytes, and seen the file end at the same byte, only their
//     errors are left to tell. Otherwise see rest.
//  4. Put what was read into the order of the caller.
func (f *File) transfer(o op, buf []byte, r region, arg int64, bad error) (n int64, err error) {
	m, err := f.enter(o)
	if err != nil {
		return 0, err
	}
	defer f.busy.Unlock()
	t := &transfer{shared: f.shared, m: m, write: o != opReadAtAll && o != opReadView && o != opReadNpy, region: r, buf: buf}
	mine := call{Arg: arg, Bytes: r.bytes, Pieces: r.pieces}
	if o != opAppendAll { // which does not know yet where
		mine.Lo, mine.Hi = r.hull()
	}
	if st, err := f.file.Stat(); err == nil {
		mine.Size = st.Size()
	} else if bad == nil {
		bad = err
	}
	if bad == nil && r.order != nil {
		t.buf = make([]byte, r.bytes)
		if t.write {
			r.ascending(t.buf, buf, false)
		}
	}
	if bad == nil && o != opAppendAll && t.alone() {
		if t.hi = mine.Hi; !t.write {
			t.hi = min(t.hi, mine.Size)
		}
		t.direct()
		if mine.State = moved; t.wrong != nil {
			mine.State = failed
		}
	}
	all, failures, err := m.begin(mine, bad, t.wrong)
	if err != nil {
		return 0, err
	}
	if t.over(all) {
		err = m.join(failures)
	} else {
		n, err = t.rest(all, failures)
	}
	if err != nil || t.write {
		return n, err
	}
	return t.received(buf, all[0].Size)
}

// over reports whether the ranks have moved all bytes. Those that read must have seen the file end at the same byte.
func (t *transfer) over(all []call) bool {
	for _, c := range all {
		if c.State < moved || !t.write && c.Size != all[0].Size {
			return false
		}
	}
	return true
}

// rest moves the bytes that have not been moved. It returns the offset when it appends.
//
//  1. Leave out the ranks that have written. Those that have read do it again, up to the end that rank 0 has seen.
//  2. Find out between which offsets the bytes of all ranks are, after those that append have their place.
//  3. Move the bytes: together, or each rank its own.
//  4. Agree on the errors, also on those of ranks that have written before. If that fails, all bytes may be missing.
func (t *transfer) rest(all []call, failures []failure) (at int64, err error) {
	var early *Error // of this rank, if it has written
	if t.write {
		early = t.wrong
		for rank, c := range all {
			if c.State >= moved {
				all[rank].Bytes, all[rank].Pieces = 0, 0
			}
		}
		if all[t.m.c.Rank()].State >= moved {
			t.region = region{}
		}
	}
	t.wrong = nil
	if t.m.op == opAppendAll {
		if at, err = t.follow(all); err != nil {
			return 0, err
		}
	}
	t.lo, t.hi = math.MaxInt64, 0
	for _, c := range all {
		if c.Bytes > 0 {
			t.lo, t.hi = min(t.lo, c.Lo), max(t.hi, c.Hi)
		}
	}
	if !t.write {
		t.hi, failures = min(t.hi, all[0].Size), nil
	}
	lo, hi := t.lo, t.hi
	for _, e := range failures {
		if e.Len > 0 {
			lo, hi = min(lo, e.Off), max(hi, e.Off+e.Len)
		}
	}
	switch {
	case t.lo >= t.hi: // nothing to do
	case t.together(all):
		err = t.exchange()
	default:
		t.direct()
	}
	if err != nil {
		return 0, t.m.fault(lo, hi-lo, err)
	}
	return at, t.m.end(lo, hi, early.and(t.wrong))
}

// follow places the bytes of each rank behind those of the rank before it, and returns the offset of this rank's.
func (t *transfer) follow(all []call) (at int64, err error) {
	end := all[0].Size
	for rank := range all {
		c := &all[rank]
		if c.Bytes > math.MaxInt64-end {
			return 0, t.m.fault(0, 0, backend.Faultf(cohort.ErrCount, "the file has %d bytes, and rank %d appends after the last offset that a file can have", all[0].Size, rank))
		}
		if rank == t.m.c.Rank() {
			at = end
			t.region, _ = blockAt(end, c.Bytes)
		}
		c.Lo, end = end, end+c.Bytes
		c.Hi = end
	}
	return at, nil
}

// received puts what was read from a file of that size into the order of buf. It returns how many bytes that are.
func (t *transfer) received(buf []byte, size int64) (n int64, err error) {
	r := t.region
	n = r.before(size)
	if r.order != nil {
		r.ascending(t.buf[:n], buf, true)
	}
	switch lo, hi := r.hull(); {
	case n == r.bytes:
		return n, nil
	case t.m.op == opReadAtAll:
		return n, io.EOF
	default:
		lo = max(lo, size)
		return n, t.m.fault(lo, hi-lo, io.ErrUnexpectedEOF)
	}
}
