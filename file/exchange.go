package file

import (
	"cmp"
	"io"
	"runtime/debug"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// A collective transfer of many small pieces takes two phases (R. Thakur, W. Gropp, E. Lusk: Data Sieving and
// Collective I/O in ROMIO, 1999). The bytes between the first and the last one that any rank moves are divided
// into windows. Some ranks, the writers, handle the windows: one window each in a round. To write, all ranks hand the
// writers their pieces of the windows, and the writers write these, in requests as large as possible. To read, each
// writer reads a window, and the ranks get their pieces of it.
const (
	maxWriters = 4 // of a node

	// The longest windows, in bytes. Those of ranks of one node stay in the processors' caches, and cost little to
	// make. On several nodes, file systems lock the file by parts of about 1 MiB.
	windowOnNode  = 512 << 10
	windowOnNodes = 4 << 20
	stripe        = 1 << 20 // windows begin at multiples of it, or of shorter windows

	// A transfer whose pieces have this length or more on average, in bytes, needs no exchange. Ranks of one node share
	// the system's cache of the file, and long requests only save them system calls. But most file systems let one rank
	// write at a time, and make shorter requests wait. File systems of several nodes lock and send blocks of the file. A
	// block should not have bytes of ranks of several nodes.
	longToRead  = 16 << 10
	longToWrite = 128 << 10
	longOnNodes = 256 << 10

	// A transfer that moves less than 1/sparse of the bytes between its first and its last needs no exchange either:
	// there is little to join.
	sparse = 4
)

// place finds out which ranks are writers, and which of them are on this rank's node.
func (s *shared) place(rank int, hosts []cohort.Host) {
	for _, h := range hosts {
		writers := h.Ranks[:min(maxWriters, len(h.Ranks))]
		s.writers = append(s.writers, writers...)
		s.most = max(s.most, len(writers))
		if slices.Contains(h.Ranks, rank) {
			s.near = writers
		}
	}
	slices.Sort(s.writers)
	s.nodes = len(hosts) > 1
}

// alone reports whether this rank moves its pieces without asking the others: they are long, or there is one, which
// joining would not make longer.
func (t *transfer) alone() bool {
	return t.long(t.region.bytes, t.region.pieces) || !t.nodes && t.region.pieces == 1
}

// long reports whether pieces are long on average.
func (t *transfer) long(bytes, pieces int64) bool {
	long := int64(longOnNodes)
	switch {
	case t.nodes:
	case t.write:
		long = longToWrite
	default:
		long = longToRead
	}
	return bytes >= long*pieces
}

// together reports whether the ranks exchange their pieces. Otherwise each moves its own.
func (t *transfer) together(all []call) bool {
	bytes, pieces := int64(0), int64(0)
	for _, c := range all {
		bytes, pieces = bytes+c.Bytes, pieces+c.Pieces
	}
	if t.long(bytes, pieces) || (t.hi-t.lo)/sparse > bytes {
		return false
	}
	return t.nodes || interleaved(all) || !t.write && pieces > int64(len(all))
}

// interleaved reports whether some rank moves bytes between those of another one. If no rank does, a write has nothing
// to join, because holes are not written.
func interleaved(all []call) bool {
	all = slices.DeleteFunc(slices.Clone(all), func(c call) bool { return c.Bytes == 0 })
	slices.SortFunc(all, func(a, b call) int { return cmp.Compare(a.Lo, b.Lo) })
	for i := range all {
		if i > 0 && all[i].Lo < all[i-1].Hi {
			return true
		}
	}
	return false
}

// transfer is a collective read or write.
type transfer struct {
	*shared
	m      *agreement
	write  bool
	region region
	buf    []byte // the region's bytes, in ascending order
	lo, hi int64  // all bytes of all ranks are between these
	end    int64  // and those that this rank moves to or from the file are before this
	wrong  *Error // the first error of this rank
}

// moved records the result of a request to the file for the bytes from off on.
func (t *transfer) moved(off int64, n int, err error) {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		t.wrong = t.m.fault(off+int64(n), t.end-off-int64(n), err)
	}
}

// at moves the bytes of p from or to the file, unless there was an error.
func (t *transfer) at(p []byte, off int64) {
	var n int
	var err error
	switch {
	case t.wrong != nil:
		return
	case t.write:
		n, err = t.file.WriteAt(p, off)
	default:
		n, err = t.file.ReadAt(p, off)
	}
	t.moved(off, n, err)
}

// direct moves the pieces of this rank one by one.
func (t *transfer) direct() {
	buf := t.buf
	_, hi := t.region.hull()
	t.end = min(t.hi, hi)
	c := cursor{strips: t.region.strips}
	c.cut(t.end, func(s strip) {
		for i := range s.count {
			t.at(buf[:s.n], s.off+i*s.stride)
			buf = buf[s.n:]
		}
	})
}

// piece is equal blocks of bytes at equal distances in a window.
type piece struct{ At, Len, Stride, Count uint32 }

// each passes the blocks of pieces to do, with their bytes, which follow each other in data.
func each(pieces []piece, data []byte, do func(at int, block []byte)) {
	for _, p := range pieces {
		for i := range int(p.Count) {
			do(int(p.At)+i*int(p.Stride), data[:p.Len])
			data = data[p.Len:]
		}
	}
}

// parts says how many elements a rank exchanges with each other rank, and where they are in its buffer.
type parts struct{ counts, displs []int }

func partsFor(ranks int) parts { return parts{make([]int, ranks), make([]int, ranks)} }

// round is what a rank does in one round of an exchange.
type round struct {
	number int
	low    int64     // the first byte of this rank's window in the file
	pieces [][]piece // of this rank, by writer
	all    []byte    // of its pieces
	bytes  [][]byte  // the same, by writer
}

// exchange moves the pieces of all ranks through the writers. The ranks of a node share the windows of its writers;
// pieces for others go by messages. In each round:
//
//  1. Each rank cuts its pieces of the windows of the round, and marks them in the windows that it shares. To write, it
//     also copies them there.
//  2. The ranks wait for each other. Now the windows have all pieces of this round, and no rank needs the windows of the
//     round before the last.
//  3. Ranks that share no windows exchange their pieces. To read, each writer reads its window before.
//
// The rest is done in the next round: writing the window, or copying pieces out of the windows. There it needs no further
// synchronization. On most file systems one rank at a time can write to a file. So the first writer of a node writes
// before it does step 1, and the others do step 1 meanwhile.
func (t *transfer) exchange() (err error) {
	// Closing the world during an exchange unmaps the windows, and their addresses are not used again soon. An access
	// then faults, and the fault becomes an error.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		fault := recover()
		if _, ok := fault.(interface{ Addr() uintptr }); ok {
			err = errClosed
		} else if fault != nil {
			panic(fault)
		}
	}()
	c := t.m.c
	writers := int64(len(t.writers))
	longest := int64(windowOnNode)
	if t.nodes {
		longest = windowOnNodes
	}
	step := min(stripe, longest)
	begin := t.lo - t.lo%step
	rounds := (t.hi - begin + writers*longest - 1) / (writers * longest)
	size := (t.hi - begin + writers*rounds - 1) / (writers * rounds)
	size = (size + step - 1) / step * step
	if err := t.prepare(int(min(size, t.hi-begin))); err != nil {
		return err
	}
	t.end = t.hi
	first := c.Rank() == t.near[0]
	walk := cursor{strips: t.region.strips}
	rest := t.buf
	var last *round
	for i := range int(rounds) {
		if t.write && first {
			t.save(last)
		}
		now := &round{number: i, pieces: make([][]piece, c.Size()), bytes: make([][]byte, c.Size())}
		before := rest
		for j, w := range t.writers {
			low := begin + min((int64(i)*writers+int64(j))*size, t.hi-begin)
			if w == c.Rank() {
				now.low = low
			}
			moved := walk.cut(low+min(size, t.hi-low), func(s strip) {
				now.pieces[w] = append(now.pieces[w], piece{uint32(s.off - low), uint32(s.n), uint32(s.stride), uint32(s.count)})
			})
			now.bytes[w], rest = rest[:moved], rest[moved:]
			t.put(t.window(now, w), now.pieces[w], now.bytes[w])
		}
		now.all = before[:len(before)-len(rest)]
		if t.write && !first {
			t.save(last)
		}
		if err := t.synchronize(now); err != nil {
			return err
		}
		if !t.write {
			t.take(last)
		}
		last = now
	}
	if t.write {
		t.save(last)
		return nil
	}
	if err := c.Barrier(); err != nil { // until the windows are read
		return err
	}
	t.take(last)
	return nil
}

// window returns a writer's window of a round, which is empty if this rank does not share it.
func (t *transfer) window(r *round, writer int) *window {
	return &t.memory.windows[writer][r.number%2]
}

// put marks pieces in a window. To write, it copies them there.
func (t *transfer) put(w *window, pieces []piece, bytes []byte) {
	switch {
	case len(pieces) == 0 || w.bytes == nil:
	case t.write:
		each(pieces, bytes, func(at int, block []byte) {
			copy(w.bytes[at:], block)
			cover(w.moved, at, at+len(block))
		})
	default:
		first, last := pieces[0], pieces[len(pieces)-1]
		end := int(last.At) + int(last.Count-1)*int(last.Stride) + int(last.Len)
		cover(w.moved, int(first.At), int(first.At)+1)
		cover(w.moved, end-1, end)
	}
}

// take copies this rank's pieces out of the windows of a round.
func (t *transfer) take(r *round) {
	if r == nil {
		return
	}
	for _, writer := range t.near {
		if w := t.window(r, writer); w.bytes != nil {
			each(r.pieces[writer], r.bytes[writer], func(at int, block []byte) { copy(block, w.bytes[at:]) })
		}
	}
}

// load reads this rank's window.
func (t *transfer) load(r *round) {
	w := t.window(r, t.m.c.Rank())
	low, high := -1, 0
	for from, to := range runs(w.moved, 64*len(w.moved)) {
		if high = to; low < 0 {
			low = from
		}
	}
	if low >= 0 {
		clear(w.moved)
		t.at(w.bytes[low:high], r.low+int64(low))
	}
}

// save writes what ranks have put into this rank's window.
func (t *transfer) save(r *round) {
	if r == nil {
		return
	}
	w := t.window(r, t.m.c.Rank())
	for from, to := range runs(w.moved, 64*len(w.moved)) {
		t.at(w.bytes[from:to], r.low+int64(from))
	}
	clear(w.moved)
}

// synchronize waits for all ranks, and exchanges pieces with ranks that share no windows. To read, it reads this rank's
// window before.
func (t *transfer) synchronize(r *round) error {
	c, m := t.m.c, &t.memory
	if !t.nodes && m.region != nil {
		err := c.Barrier()
		if err == nil && !t.write {
			t.load(r)
		}
		return err
	}
	out, in, asks := partsFor(c.Size()), partsFor(c.Size()), make([]int, c.Size())
	var pieces []piece
	at := 0
	for rank, bytes := range r.bytes {
		out.displs[rank] = at
		at += len(bytes)
		if m.windows[rank][0].bytes == nil {
			out.counts[rank], asks[rank] = len(bytes), len(r.pieces[rank])
			pieces = append(pieces, r.pieces[rank]...)
		}
	}
	asked, asks, err := cohort.AlltoallvAppend(c, nil, pieces, asks)
	if err != nil {
		return err
	}
	total, theirs := 0, asked
	for rank, n := range asks {
		in.displs[rank] = total
		for _, p := range theirs[:n] {
			total += int(p.Len) * int(p.Count)
		}
		in.counts[rank], theirs = total-in.displs[rank], theirs[n:]
	}
	data := room(&m.data, total)
	w := t.window(r, c.Rank())
	if t.write {
		if err = cohort.Alltoallv(c, r.all, out.counts, out.displs, data, in.counts, in.displs); err == nil {
			t.put(w, asked, data)
		}
		return err
	}
	theirs = asked
	for _, n := range asks {
		t.put(w, theirs[:n], nil)
		theirs = theirs[n:]
	}
	t.load(r)
	each(asked, data, func(at int, block []byte) { copy(block, w.bytes[at:]) })
	return cohort.Alltoallv(c, data, in.counts, in.displs, r.all, out.counts, out.displs)
}
