package cohorttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// The matrix: every collective in its three forms, over lengths, element types,
// roots, and in place or not. The smaller matrix is a sample of it (sample.go).

// form is a way to make a collective call.
type form string

const (
	blocking    form = "blocking"
	nonblocking form = "nonblocking"
	persistent  form = "persistent"
)

var forms = []form{blocking, nonblocking, persistent}

// long is a length above every backend's limits for eager messages and for small
// collectives. It is odd, so that no block has a round length.
const long = 70001

// lengths are those of the matrix.
var lengths = []int{0, 1, 3, 64, 1000, long}

func collectiveScenarios() []scenario {
	var all []scenario
	for _, c := range collectives() {
		all = append(all, scenario{name: c.name, body: c.run})
	}
	return append(all, scenario{name: "Barrier", body: barriers}, scenario{name: "collectives/nil", body: nilBuffers})
}

// collective is a collective of the matrix, with the element types that it is
// called with.
type collective struct {
	name            string
	rooted, inPlace bool
	types           []elements
}

// elements calls a collective with elements of one type.
type elements struct {
	call func(r *Rank, s shape, how form)
	long bool // the whole matrix has the long vector with this type
	few  bool // the whole matrix has this type for up to 4 ranks only
}

func collectives() (all []collective) {
	for _, f := range moves[int32]() { // for the names
		all = append(all, collective{f.name, f.rooted, f.inPlace, []elements{
			moved(f.name, float64s, elements{}),
			moved(f.name, packeds, elements{long: true}),
			moved(f.name, int32s, elements{}),
			moved(f.name, uint8s, elements{long: true}),
			moved(f.name, triples, elements{}),
			moved(f.name, tickses, elements{few: true}),
			moved(f.name, paddeds, elements{few: true}),
			moved(f.name, complex128s, elements{few: true}),
		}})
	}
	for _, f := range reductions[int32]() {
		all = append(all, collective{f.name, f.rooted, f.inPlace, []elements{
			reduced(f.name, float64s, elements{long: true}),
			reduced(f.name, int32s, elements{}),
			reduced(f.name, uint8s, elements{long: true}),
			reduced(f.name, tickses, elements{few: true}),
			reduced(f.name, float32s, elements{few: true}),
			reduced(f.name, complex128s, elements{few: true}),
		}})
	}
	return all
}

func moved[T comparable](name string, k kind[T], e elements) elements {
	f := named(moves[T](), name)
	e.call = func(r *Rank, s shape, how form) { runCase(r, f, k, s, how, cohort.Sum, nil) }
	return e
}

func reduced[T cohort.Number](name string, k kind[T], e elements) elements {
	f := named(reductions[T](), name)
	e.call = func(r *Rank, s shape, how form) {
		runCase(r, f, k, s, how, cohort.Sum, func(a, b T) T { return a + b })
	}
	return e
}

func named[T comparable](families []family[T], name string) family[T] {
	for _, f := range families {
		if f.name == name {
			return f
		}
	}
	panic("cohorttest: no collective " + name)
}

// run runs the collective through the matrix, or the smaller one.
func (c collective) run(r *Rank) {
	if r.Short {
		for i, row := range r.sampled(c.axes(r)...) {
			c.one(r, c.types[row[0]], lengths[row[1]], c.rootAt(r, row[2]), row[3] == 1, forms[row[4]], 100*(i+1))
		}
		return
	}
	seed := 0
	for _, e := range c.types {
		for _, m := range lengths {
			if e.few && r.Size > 4 || m == long && !e.long {
				continue
			}
			roots := each(c.roots(r), func(i int) int { return c.rootAt(r, i) })
			if m >= 1000 {
				roots = roots[len(roots)-1:]
			}
			for _, root := range roots {
				for _, inPlace := range []bool{false, true}[:c.places()] {
					for _, form := range forms {
						seed += 100
						c.one(r, e, m, root, inPlace, form, seed)
					}
				}
			}
		}
	}
}

// one makes one call. Blocks of many ranks are shorter than a vector of one.
func (c collective) one(r *Rank, e elements, m, root int, inPlace bool, how form, seed int) {
	if m == long {
		m = max(m/r.Size, long/4)
	}
	e.call(r, shape{m, root, inPlace, seed}, how)
}

// axes returns how many values each axis of the sample has: types, lengths, roots,
// places, forms.
func (c collective) axes(r *Rank) []int {
	return []int{len(c.types), len(lengths), c.roots(r), c.places(), len(forms)}
}

// roots returns how many roots there are to try: every rank, or the first, the
// middle one and the last where the sample spreads over numbers of ranks.
func (c collective) roots(r *Rank) int {
	switch {
	case !c.rooted:
		return 1
	case r.job.Spread:
		return 3
	}
	return r.Size
}

func (c collective) rootAt(r *Rank, i int) int {
	switch {
	case !c.rooted:
		return -1
	case r.job.Spread:
		return i * (r.Size - 1) / 2
	}
	return i
}

// places returns in how many ways the buffers can be given: apart, and in place.
func (c collective) places() int {
	if c.inPlace {
		return 2
	}
	return 1
}

// allTypes reports whether all types of elements are tried. Up to 4 ranks try all of
// them, which is enough because types and numbers of ranks do not affect each other.
func (r *Rank) allTypes() bool { return !r.Short && r.Size <= 4 }

// bound is a call of the matrix with its buffers, on a communicator.
type bound struct {
	block  func() error
	start  func() (*cohort.Request, error)
	setup  func() (*cohort.Persistent, error)
	renew  func()                  // gives the buffers other contents, for another call
	verify func(r *Rank, how form) // checks every element of the buffers after a call, guards included
	name   func(how form) string
}

func bind[T comparable](c *cohort.Comm, f family[T], k kind[T], s shape, op cohort.Op, fold func(a, b T) T) *bound {
	a := &args[T]{shape: s, rank: c.Rank(), size: c.Size(), kind: k, op: op, fold: fold}
	f.define(a)
	return &bound{
		block:  func() error { return f.block(c, a) },
		start:  func() (*cohort.Request, error) { return f.start(c, a) },
		setup:  func() (*cohort.Persistent, error) { return f.setup(c, a) },
		renew:  func() { a.seed++; f.define(a) },
		verify: func(r *Rank, how form) { a.verify(r, f.name, how) },
		name:   func(how form) string { return a.describe(f.name, how) },
	}
}

// run makes the call in a form and checks it. A persistent operation is started three times, with other data each time.
func (b *bound) run(r *Rank, how form) error {
	switch how {
	case blocking:
		if err := b.block(); err != nil {
			return fmt.Errorf("%s: %w", b.name(how), err)
		}
	case nonblocking:
		if err := wait(b.start()); err != nil {
			return fmt.Errorf("%s: %w", b.name(how), err)
		}
	case persistent:
		p, err := b.setup()
		for i := 0; i < 3 && err == nil; i++ {
			if i > 0 {
				b.renew()
			}
			if _, err = p.Run(); err == nil {
				b.verify(r, how)
			}
		}
		if err = errors.Join(err, p.Close()); err != nil {
			return fmt.Errorf("%s: %w", b.name(how), err)
		}
		return nil
	}
	b.verify(r, how)
	return nil
}

// runCase makes one call and checks it.
func runCase[T comparable](r *Rank, f family[T], k kind[T], s shape, how form, op cohort.Op, fold func(a, b T) T) {
	r.OK(bind(r.Comm, f, k, s, op, fold).run(r, how))
}

// draw returns a collective call with m elements for each rank, and a random root. All ranks of c draw the same one.
func draw(rng *rand.Rand, c *cohort.Comm, m int) *bound {
	all := append(moves[int64](), reductions[int64]()...)
	f, s := all[rng.IntN(len(all))], shape{m, -1, rng.IntN(2) == 0, rng.IntN(1 << 20)}
	if root := rng.IntN(c.Size()); f.rooted {
		s.root = root
	}
	s.inPlace = s.inPlace && f.inPlace
	return bind(c, f, kind[int64]{"int64", func(x int) int64 { return int64(x) }, -7}, s, cohort.Sum, func(a, b int64) int64 { return a + b })
}

func (a *args[T]) describe(name string, how form) string {
	s := fmt.Sprintf("%s %s of %d %s", how, name, a.m, a.kind.name)
	if a.root >= 0 {
		s += fmt.Sprintf(", root %d", a.root)
	}
	if a.inPlace {
		s += ", in place"
	}
	return s
}

// verify compares the call's buffers with what they must contain.
func (a *args[T]) verify(r *Rank, name string, how form) {
	check := func(which string, b, want *buffer[T], loose func(int) bool) {
		if b == nil {
			return
		}
		if i, ok := b.diff(want, loose); !ok {
			r.Errorf("%s: %s[%d] of %d is %v, want %v",
				a.describe(name, how), which, i, len(b.data), b.all[i+guards], want.all[i+guards])
		}
	}
	check("send", a.sendBuf, a.sendWant, nil)
	check("recv", a.recvBuf, a.recvWant, a.loose)
}

// barriers checks that no rank leaves a barrier before the last has entered it.
// One rank enters late. Before, it probes many times for the message that the
// others send after the barrier, and must not find one.
func barriers(r *Rank) {
	const left = 1
	wait := map[form]func() error{
		blocking:    r.Comm.Barrier,
		nonblocking: func() error { return wait(r.Comm.Ibarrier()) },
		persistent:  func() error { return runOnce(r.Comm.BarrierInit()) },
	}
	for late := range r.Size {
		for _, form := range forms {
			if r.Rank != late {
				r.OK(wait[form]())
				r.OK(cohort.Send(r.Comm, []int32{7}, late, left))
				continue
			}
			for range 200 {
				if st, found := must2(r.Comm.Iprobe(cohort.AnySource, left)); found {
					r.Errorf("%s: rank %d has left the barrier before rank %d has entered it", form, st.Source, late)
					break
				}
				runtime.Gosched()
			}
			r.OK(wait[form]())
			for range r.Size - 1 {
				must(cohort.Recv(r.Comm, make([]int32, 1), cohort.AnySource, left))
			}
		}
	}
}

// nilBuffers passes nil for all buffers of every collective, and empty ones. They move no elements.
func nilBuffers(r *Rank) {
	c, sum := r.Comm, cohort.Sum
	counts := make([]int, r.Size)
	g := must(c.CartCreate([]int{r.Size}, []bool{false}, false))
	for _, b := range [][]float64{nil, {}} {
		for root := range r.Size {
			r.OK(cohort.Bcast(c, b, root))
			r.OK(cohort.Gather(c, b, b, root))
			r.OK(cohort.Gatherv(c, b, b, counts, counts, root))
			r.OK(cohort.Scatter(c, b, b, root))
			r.OK(cohort.Scatterv(c, b, counts, counts, b, root))
			r.OK(cohort.Reduce(c, b, b, sum, root))
		}
		r.OK(cohort.Allgather(c, b, b))
		r.OK(cohort.Allgatherv(c, b, b, counts, counts))
		r.OK(cohort.Alltoall(c, b, b))
		r.OK(cohort.Alltoallv(c, b, counts, counts, b, counts, counts))
		r.OK(cohort.Allreduce(c, b, b, sum))
		r.OK(cohort.ReduceScatterBlock(c, b, b, sum))
		r.OK(cohort.ReduceScatter(c, b, b, counts, sum))
		r.OK(cohort.Scan(c, b, b, sum))
		r.OK(cohort.Exscan(c, b, b, sum))
		if st := must(cohort.Sendrecv(c, b, r.next, 1, b, r.prev, 1)); st.Bytes() != 0 || cohort.Count[float64](st) != 0 || st.Source != r.prev {
			r.Errorf("Sendrecv of nothing: %v", st)
		}
		if got, from := must2(cohort.AlltoallvAppend(c, nil, b, counts)); len(got) > 0 || !slices.Equal(from, counts) {
			r.Errorf("AlltoallvAppend of nothing: %v with counts %v", got, from)
		}
		r.OK(cohort.NeighborAllgather(g, b, b))
		r.OK(cohort.NeighborAlltoall(g, b, b))
		r.OK(cohort.NeighborAlltoallv(g, b, []int{0, 0}, []int{0, 0}, b, []int{0, 0}, []int{0, 0}))
	}
	r.OK(g.Close())
}
