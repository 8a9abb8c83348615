package cohorttest

import "github.com/cohort-hpc/cohort"

// shape is what the ranks agree on for one case of the matrix.
type shape struct {
	m       int // elements: of the vector, or of one block
	root    int // -1 for collectives without one
	inPlace bool
	seed    int
}

// args is one rank's arguments of one collective call, and what its buffers
// must hold after it.
type args[T comparable] struct {
	shape
	rank, size int
	kind       kind[T]
	op         cohort.Op
	fold       func(a, b T) T // op's definition, of reductions

	send, recv         []T
	scounts, sdispls   []int
	rcounts, rdispls   []int
	sendBuf, recvBuf   *buffer[T]
	sendWant, recvWant *buffer[T]
	loose              func(i int) bool // positions of recv that are not specified
}

// input returns element i of what rank contributes.
func (a *args[T]) input(rank, i int) T { return a.kind.elem(value(a.seed, rank, i)) }

// put fills dst with what rank contributes from element from on.
func (a *args[T]) put(dst []T, rank, from int) {
	for i := range dst {
		dst[i] = a.input(rank, from+i)
	}
}

// buffers gives the call a send buffer of ns elements and a receive buffer of
// nr, or none where the number is negative; in place they are the same. The
// memory is the same each time, as a persistent operation needs it.
func (a *args[T]) buffers(ns, nr int) {
	if ns >= 0 && a.sendBuf == nil {
		a.sendBuf = newBuffer(a.kind, ns)
	}
	if nr >= 0 && a.recvBuf == nil {
		a.recvBuf = newBuffer(a.kind, nr)
	}
	for _, b := range []*buffer[T]{a.sendBuf, a.recvBuf} {
		if b != nil {
			b.clear()
		}
	}
	a.send, a.recv = nil, nil
	if ns >= 0 {
		a.send = a.sendBuf.data
	}
	if nr >= 0 {
		a.recv = a.recvBuf.data
	}
}

// same gives the call one buffer of n elements as send and recv.
func (a *args[T]) same(n int) {
	a.buffers(-1, n)
	a.send = a.recv
}

// images begins the expectation: nothing has changed.
func (a *args[T]) images() {
	a.sendWant, a.recvWant = image(a.sendBuf), image(a.recvBuf)
}

func image[T comparable](b *buffer[T]) *buffer[T] {
	if b == nil {
		return nil
	}
	c := &buffer[T]{kind: b.kind, all: append([]T(nil), b.all...)}
	c.data = c.all[guards : len(c.all)-guards]
	return c
}

// expect says that recv holds, from element at on, n elements of what rank
// contributes, from element from on.
func (a *args[T]) expect(at, n, rank, from int) { a.put(a.recvWant.data[at:at+n], rank, from) }

// expectFold says that recv holds, from element at on, n elements of the
// contributions of ranks lo to hi-1 combined, from element from on.
func (a *args[T]) expectFold(at, n, lo, hi, from int) {
	for i := range n {
		x := a.input(lo, from+i)
		for r := lo + 1; r < hi; r++ {
			x = a.fold(x, a.input(r, from+i))
		}
		a.recvWant.data[at+i] = x
	}
}

// ragged is the length of rank r's block in the collectives with counts: some
// are empty, and for m of at least 3 no two neighbours are alike.
func (a *args[T]) ragged(r int) int { return (r*2 + 1) % 4 * a.m / 3 }

// backwards returns displacements that put blocks of the given lengths into a
// buffer from its end, with gaps of two elements, and the buffer's length.
func backwards(counts []int) (displs []int, n int) {
	displs = make([]int, len(counts))
	for i := len(counts) - 1; i >= 0; i-- {
		displs[i] = n + 2
		n += 2 + counts[i]
	}
	return displs, n + 2
}

// forwards returns displacements that put blocks one after the other.
func forwards(counts []int) (displs []int, n int) {
	displs = make([]int, len(counts))
	for i, c := range counts {
		displs[i] = n
		n += c
	}
	return displs, n
}

func each(n int, f func(i int) int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = f(i)
	}
	return s
}
