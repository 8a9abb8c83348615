package cohorttest

import (
	"fmt"
	"runtime"

	"github.com/cohort-hpc/cohort"
)

// The matrix: every collective, in its three forms, over lengths, element
// types, roots, and in place or not.

// form is a way to make a collective call.
type form string

const (
	blocking    form = "blocking"
	nonblocking form = "nonblocking"
	persistent  form = "persistent"
)

var forms = []form{blocking, nonblocking, persistent}

// long is the length that takes every backend past its thresholds for eager
// messages and small collectives; it is odd, so that no block is round.
const long = 70001

func collectiveScenarios() []scenario {
	var all []scenario
	for _, f := range moves[int32]() { // for the names
		all = append(all, scenario{name: f.name, body: func(r *Rank) {
			lengths := lengths(r)
			runMoves(r, f.name, float64s, lengths)
			runMoves(r, f.name, packeds, append(lengths, long))
			if r.crowd() {
				return
			}
			runMoves(r, f.name, int32s, lengths)
			runMoves(r, f.name, uint8s, append(lengths, long))
			runMoves(r, f.name, triples, lengths)
			if r.allTypes() {
				runMoves(r, f.name, tickses, lengths)
				runMoves(r, f.name, paddeds, lengths)
				runMoves(r, f.name, complex128s, lengths)
			}
		}})
	}
	for _, f := range reductions[int32]() {
		all = append(all, scenario{name: f.name, body: func(r *Rank) {
			lengths := lengths(r)
			runReductions(r, f.name, float64s, append(lengths, long))
			runReductions(r, f.name, int32s, lengths)
			if r.crowd() {
				return
			}
			runReductions(r, f.name, uint8s, append(lengths, long))
			if r.allTypes() {
				runReductions(r, f.name, tickses, lengths)
				runReductions(r, f.name, float32s, lengths)
				runReductions(r, f.name, complex128s, lengths)
			}
		}})
	}
	return append(all, scenario{name: "Barrier", body: barriers})
}

// allTypes reports whether the matrix has all types of elements. Types do not depend on how many ranks
// there are: up to 4 try all of them, more those of every size.
func (r *Rank) allTypes() bool { return !r.Short && r.Size <= 4 }

// crowd reports whether there are so many ranks that only what depends on their number is tried: roots,
// lengths, and forms, and not every type of elements and operation with each.
func (r *Rank) crowd() bool { return r.Short && r.Size > 5 }

func lengths(r *Rank) []int {
	if r.Short {
		return []int{0, 1, 3, 64}
	}
	return []int{0, 1, 3, 64, 1000}
}

func runMoves[T comparable](r *Rank, name string, k kind[T], lengths []int) {
	for _, f := range moves[T]() {
		if f.name == name {
			runFamily(r, f, k, lengths, cohort.Sum, nil)
		}
	}
}

func runReductions[T element](r *Rank, name string, k kind[T], lengths []int) {
	for _, f := range reductions[T]() {
		if f.name == name {
			runFamily(r, f, k, lengths, cohort.Sum, func(a, b T) T { return a + b })
		}
	}
}

// runFamily runs one collective with one element type through the matrix.
func runFamily[T comparable](r *Rank, f family[T], k kind[T], lengths []int, op cohort.Op, fold func(a, b T) T) {
	seed := 0
	for _, m := range lengths {
		roots := []int{-1}
		if f.rooted {
			roots = someRoots(r, m)
		}
		if m == long {
			m = max(m/r.Size, long/4) // the matrix has to end
		}
		for _, root := range roots {
			for _, inPlace := range []bool{false, true} {
				if inPlace && !f.inPlace {
					continue
				}
				for _, form := range forms {
					seed += 100
					runCase(r, f, k, shape{m, root, inPlace, seed}, form, op, fold)
				}
			}
		}
	}
}

// someRoots returns the roots to try: all for short messages, the last rank for
// long ones. The smaller matrix has all for one length, and one in the middle for the other short ones.
func someRoots(r *Rank, m int) []int {
	switch {
	case m == long || m == 1000 && r.Size > 1:
		return []int{r.Size - 1}
	case r.Short && m != 3:
		return []int{r.Size / 2}
	}
	return each(r.Size, func(i int) int { return i })
}

// runCase makes one call, checks every element of its buffers, guards included,
// and where the operation is persistent does so again with other data.
func runCase[T comparable](r *Rank, f family[T], k kind[T], s shape, how form, op cohort.Op, fold func(a, b T) T) {
	a := &args[T]{shape: s, rank: r.Rank, size: r.Size, kind: k, op: op, fold: fold}
	f.define(a)
	fail := func(err error) {
		if err != nil {
			r.OK(fmt.Errorf("%s: %w", a.describe(f.name, how), err))
		}
	}
	switch how {
	case blocking:
		fail(f.block(r.Comm, a))
		a.verify(r, f.name, how)
	case nonblocking:
		req, err := f.start(r.Comm, a)
		fail(err)
		_, err = req.Wait()
		fail(err)
		a.verify(r, f.name, how)
	case persistent:
		p, err := f.setup(r.Comm, a)
		fail(err)
		for range 3 {
			fail(p.Start())
			_, err := p.Wait()
			fail(err)
			a.verify(r, f.name, how)
			a.seed++
			f.define(a)
		}
		fail(p.Close())
	}
	r.OK(nil)
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

// verify compares the call's buffers with what they must hold.
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
// One rank comes late, after it has looked many times for the word that the
// others send when they have left; it finds none.
func barriers(r *Rank) {
	c := r.Comm
	const left = 1
	wait := map[form]func() error{
		blocking: c.Barrier,
		nonblocking: func() error {
			req, err := c.Ibarrier()
			if err == nil {
				_, err = req.Wait()
			}
			return err
		},
		persistent: func() error {
			p, err := c.BarrierInit()
			r.OK(err)
			r.OK(p.Start())
			if _, err := p.Wait(); err != nil {
				return err
			}
			return p.Close()
		},
	}
	for late := range r.Size {
		for _, form := range forms {
			if r.Rank != late {
				r.OK(wait[form]())
				r.OK(cohort.Send(c, []int32{7}, late, left))
				continue
			}
			for range 200 {
				st, found, err := c.Iprobe(cohort.AnySource, left)
				r.OK(err)
				if found {
					r.Errorf("%s: rank %d has left the barrier before rank %d has entered it", form, st.Source, late)
					break
				}
				runtime.Gosched()
			}
			r.OK(wait[form]())
			for range r.Size - 1 {
				_, err := cohort.Recv(c, make([]int32, 1), cohort.AnySource, left)
				r.OK(err)
			}
		}
	}
}
