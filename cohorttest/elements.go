package cohorttest

import "math/rand/v2"

// kind is an element type of the matrix: its name and the element that stands
// for a small number. Numbers that differ by less than 97 give elements that
// differ.
type kind[T comparable] struct {
	name  string
	elem  func(x int) T
	guard T // no elem gives it
}

// A named number, structs with and without padding, and an array of odd size:
// slices of the last two that do not begin at the beginning of an allocation
// are not aligned for anything wider than a byte.
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
	paddeds = kind[padded]{"padded struct", func(x int) padded {
		return padded{int8(x), int64(x) << 32, x%2 == 0}
	}, padded{B: -7}}
	triples = kind[triple]{"[3]byte", func(x int) triple {
		return triple{byte(x), byte(x) ^ 0xff, byte(x) + 1}
	}, triple{0xa5, 0xa5, 0xa5}}
)

// value is element i of what rank contributes in the case with the given seed:
// a number from 0 to 96 without a pattern that a shifted or swapped block would
// repeat.
func value(seed, rank, i int) int {
	h := uint64(i)*0x9e3779b97f4a7c15 ^ uint64(rank+1)*0xbf58476d1ce4e5b9 ^ uint64(seed+1)*0x94d049bb133111eb
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return int(h >> 33 % 97)
}

// guards is how many guard elements stand on either side of a buffer. It is
// odd, so that buffers of small elements are not aligned.
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

// clear makes all elements guards.
func (b *buffer[T]) clear() {
	for i := range b.all {
		b.all[i] = b.kind.guard
	}
}

// diff returns the position, in terms of data, of the first element that is not
// what image has there; loose positions are not compared. ok is true if there
// is none.
func (b *buffer[T]) diff(image *buffer[T], loose func(i int) bool) (i int, ok bool) {
	for i, x := range b.all {
		if x != image.all[i] && (loose == nil || !loose(i-guards)) {
			return i - guards, false
		}
	}
	return 0, true
}

// seeded returns the generator of a scenario, the same on every rank.
func seeded(name string, size int) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(h, uint64(size)))
}
