package direct

import (
	"errors"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// world is two ranks in one process.
type world struct {
	recv, work [2][]byte
	arrived    [2]chan []byte
}

// member is a rank of a world. Its time is up at the first look after late synchronizations.
type member struct {
	*world
	rank, syncs, late int
	long              int // bytes of Work, if that is longer than a piece
}

var errLate = errors.New("the time is up")

func (m *member) Read(rank int, from Space, off int, dst []byte) ([]byte, error) {
	buf := m.recv[rank]
	if from == Work {
		buf = m.work[rank]
	}
	copy(dst, buf[off:])
	return dst, nil
}

func (m *member) Block(int, int) (int, int, error) { return 0, 0, nil }

func (m *member) Over() error {
	if m.syncs >= m.late {
		return errLate
	}
	return nil
}

func (m *member) Sync(work []byte, bad error) error {
	if m.syncs++; len(work) > pieceBytes {
		m.long = len(work)
	}
	if m.syncs > m.late { // the other one has ended
		return errLate
	}
	m.arrived[m.rank] <- work
	m.work[1-m.rank] = <-m.arrived[1-m.rank]
	return bad
}

func (m *member) Fails(error, bool) {}

// Collectives that keep a result aside have the right one when it is longer than a piece. Their time can be up while they
// copy it, and they make no longer memory than a piece at once.
func TestLongResultsAsideLookAtTheTime(t *testing.T) {
	const n = 2*pieceBytes + 5 // of a block, or of a vector
	value := func(rank, i int) byte { return byte(i*(7+rank) + i>>13 + rank) }
	both := func(i int) byte { return value(0, i) + value(1, i) }
	add := &backend.Op{Code: backend.OpSum, Commutative: true, Apply: func(dst, a, b []byte) {
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	}}
	for _, x := range []struct {
		coll   backend.Coll
		blocks int // of n bytes in Recv
		syncs  int
		want   func(rank, i int) byte
	}{
		{backend.Alltoall, 2, 2, func(rank, i int) byte { return value(i/n, rank*n+i%n) }},
		{backend.Scan, 1, 2, func(rank, i int) byte {
			if rank == 0 {
				return value(0, i)
			}
			return both(i)
		}},
		{backend.Reduce, 1, 3, func(rank, i int) byte {
			if rank == 1 {
				return value(1, i)
			}
			return both(i)
		}},
		{backend.ReduceScatterBlock, 2, 2, func(rank, i int) byte {
			if i < n {
				return both(rank*n + i)
			}
			return value(rank, i)
		}},
	} {
		for _, late := range []int{x.syncs, 1} {
			w := &world{arrived: [2]chan []byte{make(chan []byte, 1), make(chan []byte, 1)}}
			var errs [2]error
			var ranks sync.WaitGroup
			for r := range 2 {
				w.recv[r] = make([]byte, x.blocks*n)
				for i := range w.recv[r] {
					w.recv[r][i] = value(r, i)
				}
			}
			for r := range 2 {
				ranks.Go(func() {
					c := &backend.Call{Coll: x.coll, InPlace: true, Op: add, Type: &backend.Datatype{Size: 1}, Count: n, Recv: w.recv[r]}
					m := &member{world: w, rank: r, late: late}
					if errs[r] = Run(c, r, 2, m, &Scratch{}, false); m.long > 0 {
						t.Errorf("%v: rank %d has %d bytes of Work", x.coll, r, m.long)
					}
				})
			}
			ranks.Wait()
			for r := range 2 {
				if (errs[r] == errLate) != (late == 1) || late > 1 && errs[r] != nil {
					t.Errorf("%v: rank %d, whose time is up after %d synchronizations, ends with %v", x.coll, r, late, errs[r])
				}
				wrong := 0
				for i, b := range w.recv[r] {
					if b != x.want(r, i) {
						wrong++
					}
				}
				if late > 1 && wrong > 0 {
					t.Errorf("%v: rank %d has %d wrong bytes", x.coll, r, wrong)
				}
			}
		}
	}
}

// slots are the inputs of ranks. The time is up once the user's function has been called so often.
type slots struct{ calls, most int }

func (s *slots) Read(_ int, _ Space, _ int, dst []byte) ([]byte, error) { return dst, nil }
func (s *slots) Block(int, int) (int, int, error)                       { return 0, 0, nil }
func (s *slots) Sync(_ []byte, bad error) error                         { return bad }
func (s *slots) Fails(error, bool)                                      {}

func (s *slots) Over() error {
	if s.calls == s.most {
		return errLate
	}
	return nil
}

// A user's function may take long for a few elements, so a reduction looks at the time between two calls of it.
func TestUserOperationsLookAtTheTime(t *testing.T) {
	const ranks, n = 8, 4
	for most := 1; most < ranks-1; most++ {
		for _, c := range []backend.Coll{backend.Allreduce, backend.Scan, backend.ReduceScatterBlock} {
			s := slots{most: most}
			slow := &backend.Op{Code: backend.OpUser, Commutative: true, Apply: func(_, _, _ []byte) { s.calls++ }}
			call := &backend.Call{Coll: c, Type: &backend.Datatype{Size: 1}, Count: n, Op: slow, Recv: make([]byte, n)}
			if err := Run(call, ranks-1, ranks, &s, new(Scratch), true); err != errLate || s.calls != most {
				t.Errorf("%v: %d calls, %v; want %d before the time is up, %v", c, s.calls, err, most, errLate)
			}
		}
	}
}
