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

// collective is a collective of the matrix, with the element types that it is
// called with.
type collective struct {
	name            string
	rooted, inPlace bool
	forms           []form
	types           []elements
}

// elements calls a collective with elements of one type.
type elements struct {
	call func(r *Rank, s shape, how form)
	long bool // the whole matrix has the long vector with this type
}

func collectives() (all []collective) {
	for _, f := range slices.Concat(moves[int32](), appendings[int32]()) { // for the names
		all = append(all, collective{f.name, f.rooted, f.inPlace, f.has(), []elements{
			moved(f.name, float64s, false),
			moved(f.name, packeds, true),
			moved(f.name, int32s, false),
			moved(f.name, uint8s, true),
			moved(f.name, triples, false),
		}})
	}
	for _, f := range reductions[int32]() {
		all = append(all, collective{f.name, f.rooted, f.inPlace, f.has(), []elements{
			reduced(f.name, float64s, true),
			reduced(f.name, int32s, false),
			reduced(f.name, uint8s, true),
		}})
	}
	return all
}

func moved[T comparable](name string, k kind[T], long bool) elements {
	f := named(slices.Concat(moves[T](), appendings[T]()), name)
	return elements{func(r *Rank, s shape, how form) { runCase(r, f, k, s, how, cohort.Sum, nil) }, long}
}

func reduced[T cohort.Number](name string, k kind[T], long bool) elements {
	f := named(reductions[T](), name)
	return elements{func(r *Rank, s shape, how form) {
		runCase(r, f, k, s, how, cohort.Sum, func(a, b T) T { return a + b })
	}, long}
}

func named[T comparable](families []family[T], name string) family[T] {
	for _, f := range families {
		if f.name == name {
			return f
		}
	}
	panic("cohorttest: no collective " + name)
}

// run runs the collective through the matrix, or the smaller one. Blocks of many ranks are shorter than a vector of one.
func (c collective) run(r *Rank) {
	roots := c.roots(r)
	for i, row := range r.rows(c.axes(r)...) {
		e, m := c.types[row[0]], lengths[row[1]]
		if !r.Short && (m == long && !e.long || m >= 1000 && row[2] < len(roots)-1) {
			continue
		}
		if m == long {
			m = max(m/r.Size, long/4)
		}
		e.call(r, shape{m, roots[row[2]], place(row[3]), 100 * (i + 1)}, c.forms[row[4]])
	}
}

// axes returns how many values each axis of the sample has: types, lengths, roots,
// places, forms.
func (c collective) axes(r *Rank) []int {
	return []int{len(c.types), len(lengths), len(c.roots(r)), c.places(), len(c.forms)}
}

// roots returns the roots to try: every rank, or with the smaller matrix the first, the middle one and the last.
func (c collective) roots(r *Rank) []int {
	switch {
	case !c.rooted:
		return []int{-1}
	case r.Short:
		return []int{0, (r.Size - 1) / 2, r.Size - 1}
	}
	return each(r.Size, func(rank int) int { return rank })
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
	once   func(how form) error
	start  func() (*cohort.Request, error)
	setup  func() (*cohort.Persistent, error)
	renew  func()                  // gives the buffers other contents, for another call
	verify func(r *Rank, how form) // checks every element of the buffers after a call, guards included
	name   func(how form) string
	coll   string
}

func bind[T comparable](c *cohort.Comm, f family[T], k kind[T], s shape, op cohort.Op, fold func(a, b T) T) *bound {
	a := &args[T]{shape: s, rank: c.Rank(), size: c.Size(), kind: k, op: op, fold: fold}
	f.define(a)
	return &bound{
		once:   func(how form) error { return f.once(how, c, a) },
		start:  func() (*cohort.Request, error) { return f.start(c, a) },
		setup:  func() (*cohort.Persistent, error) { return f.setup(c, a) },
		renew:  func() { a.seed++; f.define(a) },
		verify: func(r *Rank, how form) { a.verify(r, f.name, how) },
		name:   func(how form) string { return a.describe(f.name, how) },
		coll:   f.name,
	}
}

// run makes the call in a form and checks it. A persistent operation is started three times, with other data each time.
func (b *bound) run(r *Rank, how form) (err error) {
	if how != persistent {
		if err = b.once(how); err == nil {
			b.verify(r, how)
		}
	} else {
		var p *cohort.Persistent
		p, err = b.setup()
		for i := 0; i < 3 && err == nil; i++ {
			if i > 0 {
				b.renew()
			}
			if _, err = p.Run(); err == nil {
				b.verify(r, how)
			}
		}
		err = errors.Join(err, p.Close())
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", b.name(how), err)
	}
	return err
}

// runCase makes one call and checks it.
func runCase[T comparable](r *Rank, f family[T], k kind[T], s shape, how form, op cohort.Op, fold func(a, b T) T) {
	r.OK(bind(r.Comm, f, k, s, op, fold).run(r, how))
}

// draw returns a collective call with m elements for each rank, and a random root: one of all collectives on h, or on c
// if h is nil. All ranks draw the same one.
func draw(rng *rand.Rand, c *cohort.Comm, h *neighborhood, m int) *bound {
	all := append(moves[int64](), reductions[int64]()...)
	if h != nil {
		c = h.comm
		around := neighborFamilies[int64](h)
		all = slices.Concat(all, around, around, around) // half of all calls
	}
	f, s := all[rng.IntN(len(all))], shape{m, -1, place(rng.IntN(int(places))), rng.IntN(1 << 20)}
	if root := rng.IntN(c.Size()); f.rooted {
		s.root = root
	}
	if !f.inPlace {
		s.place = apart
	}
	return bind(c, f, int64s, s, cohort.Sum, sum)
}

var int64s = kind[int64]{"int64", func(x int) int64 { return int64(x) }, -7}

func sum(a, b int64) int64 { return a + b }

// mixedInPlace calls the collectives in place on some ranks and not on others. A library may choose its algorithm by the
// length, and by what one rank passes.
func mixedInPlace(r *Rank) {
	for i, f := range slices.Concat(moves[int64](), reductions[int64]()) {
		if f.rooted || !f.inPlace {
			continue
		}
		for j, how := range forms {
			for p := firstInPlace; p < places; p++ {
				for _, m := range []int{1, long} {
					if m == 1 || !r.Short || (i+j+int(p))%4 == 0 {
						runCase(r, f, int64s, shape{m, -1, p, i}, how, cohort.Sum, sum)
					}
				}
			}
		}
	}
}

func (a *args[T]) describe(name string, how form) string {
	s := fmt.Sprintf("%s %s of %d %s", how, name, a.m, a.kind.name)
	if a.root >= 0 {
		s += fmt.Sprintf(", root %d", a.root)
	}
	return s + placeNames[a.place]
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

// nilBuffers passes nil for all buffers and displacements of every collective, and empty ones. They move no elements.
func nilBuffers(r *Rank) {
	h := gridOf(r, []int{r.Size}, []bool{false})
	for _, f := range slices.Concat(moves[float64](), reductions[float64](), neighborFamilies[float64](h)) {
		for root := range r.Size {
			a := &args[float64]{shape: shape{root: root}, rank: r.Rank, size: r.Size, kind: float64s, op: cohort.Sum}
			f.define(a)
			for _, b := range [][]float64{nil, {}} {
				a.send, a.recv, a.sdispls, a.rdispls = b, b, nil, nil
				r.OK(f.once(blocking, h.comm, a))
			}
		}
	}
	r.OK(h.close())
}
