package cohorttest

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	"github.com/cohort-hpc/cohort"
)

// kind is an element type of the matrix: its name, and the element for a small number.
// Numbers that differ by less than 97 give different elements.
type kind[T comparable] struct {
	name  string
	elem  func(x int) T
	guard T // differs from every elem
}

// A named number, structs with and without padding, and an array of odd size. A slice
// of the array that does not begin at the beginning of an allocation is not aligned for
// anything wider than a byte.
type (
	ticks  int64
	packed struct {
		A float64
		B int32
		C [2]int16
	}
	padded struct {
		A int8
		B int64
		C bool
	}
	triple [3]byte
)

var (
	float64s    = kind[float64]{"float64", func(x int) float64 { return float64(x) }, -1e300}
	float32s    = kind[float32]{"float32", func(x int) float32 { return float32(x) }, -1e30}
	int32s      = kind[int32]{"int32", func(x int) int32 { return int32(x) }, -0x5a5a5a5a}
	uint8s      = kind[uint8]{"uint8", func(x int) uint8 { return uint8(x) }, 0xa5}
	complex128s = kind[complex128]{"complex128", func(x int) complex128 { return complex(float64(x), float64(-x)) }, -1e300}
	tickses     = kind[ticks]{"named int64", func(x int) ticks { return ticks(x) << 40 }, -7}

	packeds = kind[packed]{"struct", func(x int) packed {
		return packed{float64(x), int32(x) << 8, [2]int16{int16(x), int16(-x)}}
	}, packed{A: -1e300}}
	paddeds = kind[padded]{"padded struct", func(x int) padded { return padded{int8(x), int64(x) << 32, x%2 == 0} }, padded{B: -7}}
	triples = kind[triple]{"[3]byte", func(x int) triple { return triple{byte(x), byte(x) ^ 0xff, byte(x) + 1} }, triple{0xa5, 0xa5, 0xa5}}
)

// value returns element i of what rank contributes in the case with the given seed: a
// number from 0 to 96. The values have no pattern, so a shifted or swapped block does
// not go unnoticed.
func value(seed, rank, i int) int {
	h := uint64(i)*0x9e3779b97f4a7c15 ^ uint64(rank+1)*0xbf58476d1ce4e5b9 ^ uint64(seed+1)*0x94d049bb133111eb
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return int(h >> 33 % 97)
}

// guards is the number of guard elements on either side of a buffer. It is odd, so that
// buffers of small elements are not aligned.
const guards = 5

// buffer is n elements between guards.
type buffer[T comparable] struct {
	kind kind[T]
	all  []T
	data []T // nil if there is no buffer
}

func newBuffer[T comparable](k kind[T], n int) *buffer[T] {
	b := &buffer[T]{kind: k, all: make([]T, n+2*guards)}
	b.data = b.all[guards : guards+n : guards+n]
	b.clear()
	return b
}

// clear sets all elements to the guard.
func (b *buffer[T]) clear() {
	for i := range b.all {
		b.all[i] = b.kind.guard
	}
}

// diff compares the buffer with image, but for the positions that are loose. It returns
// the position in data of the first element that differs, and whether all are equal.
func (b *buffer[T]) diff(image *buffer[T], loose func(i int) bool) (i int, ok bool) {
	for i, x := range b.all {
		if x != image.all[i] && (loose == nil || !loose(i-guards)) {
			return i - guards, false
		}
	}
	return 0, true
}

// is checks that the buffer is like image.
func (b *buffer[T]) is(r *Rank, image *buffer[T], what string, args ...any) {
	if i, ok := b.diff(image, nil); !ok {
		r.Errorf("%s: element %d is %v, want %v", fmt.Sprintf(what, args...), i, b.all[i+guards], image.all[i+guards])
	}
}

// unwritten checks that no element outside of data was written.
func (b *buffer[T]) unwritten(r *Rank, what string) {
	n := len(b.data)
	for i, x := range b.all {
		if (i < guards || i >= guards+n) && x != b.kind.guard {
			r.Errorf("%s: element %d, outside recv, was written", what, i-guards)
		}
	}
}

// seeded returns the generator of a scenario, the same on every rank.
func seeded(name string, size int) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(size)))
}

// shape is what is equal on all ranks in one case of the matrix.
type shape struct {
	m     int // elements of the vector, or of one block
	root  int // -1 for collectives without a root
	place place
	seed  int
}

// place says which ranks work in place, if they get all that they send and receive in one buffer.
type place uint8

const (
	apart      place = iota // none
	allInPlace              // all
	firstInPlace
	othersInPlace // all but the first rank
	evenInPlace
	lastEmpty // all but the last rank, whose counts are 0
	places
)

var placeNames = [places]string{"", ", in place", ", in place on rank 0", ", in place on all but rank 0", ", in place on even ranks",
	", in place on all but the last rank, which has no elements"}

// inPlace reports whether a rank works in place.
func (a *args[T]) inPlace(rank int) bool {
	switch a.place {
	case apart:
		return false
	case firstInPlace:
		return rank == 0
	case othersInPlace:
		return rank != 0
	case evenInPlace:
		return rank%2 == 0
	}
	return !a.empty(rank)
}

// empty reports whether a rank has no elements in the collectives with counts.
func (a *args[T]) empty(rank int) bool { return a.place == lastEmpty && rank == a.size-1 }

// args has one rank's arguments of one collective call, and what its buffers must
// contain afterwards.
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

// buffers gives the call a send buffer of ns elements and a receive buffer of nr
// elements; a negative number means no buffer. Calls of buffers on one args give the
// same memory, which a persistent operation needs.
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

// images starts the expected contents as a copy of the buffers.
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

// expect sets n expected elements of recv, from element at on, to what rank contributes
// from element from on.
func (a *args[T]) expect(at, n, rank, from int) { a.put(a.recvWant.data[at:at+n], rank, from) }

// expectFold sets n expected elements of recv, from element at on, to the combined
// contributions of ranks lo to hi-1, if there are any, from element from on.
func (a *args[T]) expectFold(at, n, lo, hi, from int) {
	for i := 0; i < n && lo < hi; i++ {
		x := a.input(lo, from+i)
		for r := lo + 1; r < hi; r++ {
			x = a.fold(x, a.input(r, from+i))
		}
		a.recvWant.data[at+i] = x
	}
}

// ragged returns the length of rank r's block in the collectives with counts. Some
// blocks are empty, and for m of at least 3 neighbors have different lengths.
func (a *args[T]) ragged(r int) int {
	if a.empty(r) {
		return 0
	}
	return (r*2 + 1) % 4 * a.m / 3
}

// backwards returns displacements that put blocks of the given lengths into a buffer in
// reverse order, with gaps of two elements, and the buffer's length.
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

func each(n int, f func(i int) int) []int { return filled(n, f) }
