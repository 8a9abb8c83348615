package values_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/values"
)

// rank is one rank of a job of goroutines.
type rank struct {
	*testing.T
	Comm                   *cohort.Comm
	Rank, Size, next, prev int
}

// onRanks runs body on jobs of 1 to 5 ranks, or from another number on. The communicator is usable afterwards.
func onRanks(t *testing.T, least int, body func(r *rank)) {
	t.Helper()
	for n := least; n <= 5; n += n/3 + 1 {
		err := cohort.Run(t.Context(), n, must.Return(func(c *cohort.Comm) error {
			me := c.Rank()
			body(&rank{t, c, me, n, (me + 1) % n, (me + n - 1) % n})
			return c.Barrier()
		}))
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

func filled[T any](n int, elem func(i int) T) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = elem(i)
	}
	return s
}

func errorOf(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

// is checks that err wraps want and contains all words.
func (r *rank) is(err, want error, what string, words ...string) {
	r.Helper()
	if !errors.Is(err, want) {
		r.Errorf("rank %d, %s: got error %v, want %v", r.Rank, what, err, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(w)) {
			r.Errorf("rank %d, %s: the error does not name %q: %v", r.Rank, what, w, err)
		}
	}
}

// got compares what an operation returned with what it must return.
func (r *rank) got(what string, err error, got, want any) {
	r.Helper()
	if err != nil || !reflect.DeepEqual(got, want) {
		r.Errorf("rank %d, %s: got %v, %v; want %v", r.Rank, what, got, err, want)
	}
}

// paper is a value with everything that elements of package cohort cannot have.
type paper struct {
	Title string
	Cites []string
	Years map[string]int
	Next  *paper
	When  time.Time
}

// paperOf returns the value of a rank for another one. No two are equal.
func paperOf(from, to int) paper {
	p := paper{Title: fmt.Sprintf("from %d to %d", from, to), When: time.Unix(int64(1000*from+to), 0).UTC()}
	for i := range from {
		p.Cites = append(p.Cites, strings.Repeat("x", i))
	}
	if from > 0 {
		p.Years = map[string]int{"first": from, "last": -to}
		p.Next = &paper{Title: p.Title}
	}
	return p
}

func TestOperationsMoveValues(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		c, me, n := r.Comm, r.Rank, r.Size
		const all = -1 // instead of a rank
		if n > 1 {
			if me%2 == 0 {
				must.OK(values.Send(c, paperOf(me, r.next), r.next, 5))
			}
			if r.prev%2 == 0 {
				got, st, err := values.Recv[paper](c, cohort.AnySource, 5)
				r.got("Recv", err, got, paperOf(r.prev, me))
				if st.Source != r.prev || st.Tag != 5 || st.Bytes() < 10 {
					r.Errorf("Recv from %d: status %+v", r.prev, st)
				}
			}
		}
		got, st, err := values.Recv[paper](c, cohort.ProcNull, 5)
		r.got("Recv from ProcNull", err, got, paper{})
		if st.Source != cohort.ProcNull {
			r.Errorf("Recv from ProcNull: status %+v", st)
		}
		must.OK(values.Send(c, paperOf(me, me), cohort.ProcNull, 5))

		var parts []paper
		for root := range n {
			got, err := values.Bcast(c, paperOf(me, all), root)
			r.got("Bcast", err, got, paperOf(root, all))
			gathered, err := values.Gather(c, paperOf(me, root), root)
			var want []paper
			if me == root {
				want = filled(n, func(i int) paper { return paperOf(i, root) })
				parts = filled(n, func(i int) paper { return paperOf(root, i) })
			}
			r.got("Gather", err, gathered, want)
			got, err = values.Scatter(c, parts, root)
			r.got("Scatter", err, got, paperOf(root, me))
			parts = nil
		}
		everybody, err := values.Allgather(c, paperOf(me, all))
		r.got("Allgather", err, everybody, filled(n, func(i int) paper { return paperOf(i, all) }))
		everybody, err = values.Alltoall(c, filled(n, func(i int) paper { return paperOf(me, i) }))
		r.got("Alltoall", err, everybody, filled(n, func(i int) paper { return paperOf(i, me) }))

		// A pointer may be nil on some ranks.
		var p *paper
		if me%2 == 1 {
			p = &paper{Title: "odd"}
		}
		pointers := must.Get(values.Allgather(c, p))
		for i, q := range pointers {
			if (q != nil) != (i%2 == 1) || q != nil && q.Title != "odd" {
				r.Errorf("Allgather of pointers: %v from rank %d", q, i)
			}
		}
	})
}

// TestValuesOfAllLengthsArrive sends texts of all lengths, which differ from rank to rank.
func TestValuesOfAllLengthsArrive(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		long := 1 << 20
		text := func(rank, n int) string { return strings.Repeat(string(rune('a'+rank%26)), n) }
		for _, m := range []int{0, 1, 100, 4000, long} {
			root := m % r.Size
			if got := must.Get(values.Bcast(r.Comm, text(r.Rank, m), root)); got != text(root, m) {
				r.Errorf("Bcast of %d bytes returns %d others", m, len(got))
			}
			all := must.Get(values.Allgather(r.Comm, text(r.Rank, m/(1+r.Rank))))
			for i, s := range all {
				if s != text(i, m/(1+i)) {
					r.Errorf("Allgather: %d bytes from rank %d, want %d, or others", len(s), i, m/(1+i))
				}
			}
		}
	})
}

// TestReductionsKeepTheOrderAndTheOperands joins texts, which is associative and does not commute, and changes its operands.
func TestReductionsKeepTheOrderAndTheOperands(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		join := func(a, b []string) []string { return append(a, b...) }
		mine, want := []string{fmt.Sprint(r.Rank)}, []string(nil)
		for i := range r.Size {
			want = append(want, fmt.Sprint(i))
		}
		for root := range r.Size {
			if got := must.Get(values.Reduce(r.Comm, mine, join, root)); r.Rank == root && !slices.Equal(got, want) || r.Rank != root && got != nil {
				r.Errorf("Reduce to %d: %v, want %v on the root", root, got, want)
			}
		}
		got, err := values.Allreduce(r.Comm, mine, join)
		r.got("Allreduce", err, got, want)
		sum, err := values.Allreduce(r.Comm, map[string]int{"ranks": 1, fmt.Sprint(r.Rank % 2): 1}, func(a, b map[string]int) map[string]int {
			for k, n := range b {
				a[k] += n
			}
			return a
		})
		counts := map[string]int{"ranks": r.Size, "0": (r.Size + 1) / 2, "1": r.Size / 2}
		if r.Size == 1 {
			delete(counts, "1")
		}
		r.got("Allreduce of maps", err, sum, counts)
		if mine[0] != fmt.Sprint(r.Rank) {
			r.Errorf("a reduction has changed its operand to %v", mine)
		}
	})
}

// unsendable has a field that cannot be sent.
type unsendable struct{ Parts []struct{ Fn func() } }

// TestWrongValuesAreErrors has all ranks pass wrong arguments. The communicator stays usable.
func TestWrongValuesAreErrors(t *testing.T) {
	onRanks(t, 1, func(r *rank) {
		var x unsendable
		_, _, recv := values.Recv[unsendable](r.Comm, 0, 1)
		_, bcast := values.Bcast(r.Comm, x, 0)
		_, gather := values.Gather(r.Comm, x, 0)
		_, allgather := values.Allgather(r.Comm, x)
		_, scatter := values.Scatter(r.Comm, make([]unsendable, r.Size), 0)
		_, alltoall := values.Alltoall(r.Comm, make([]unsendable, r.Size))
		_, reduce := values.Reduce(r.Comm, x, func(a, b unsendable) unsendable { return a }, 0)
		_, allreduce := values.Allreduce(r.Comm, x, func(a, b unsendable) unsendable { return a })
		for what, err := range map[string]error{
			"Send": values.Send(r.Comm, x, 0, 1), "Recv": recv, "Bcast": bcast, "Gather": gather, "Allgather": allgather,
			"Scatter": scatter, "Alltoall": alltoall, "Reduce": reduce, "Allreduce": allreduce,
		} {
			r.is(err, cohort.ErrType, fmt.Sprintf("%s of a type with a function", what), "unsendable.Parts[].Fn", "values."+what)
		}
		_, err := values.Alltoall(r.Comm, make([]int, r.Size+1))
		r.is(err, cohort.ErrCount, "Alltoall of too many values")
		r.is(errorOf(values.Allreduce(r.Comm, 1, nil)), cohort.ErrOp, "Allreduce without a function")
		r.is(errorOf(values.Bcast(r.Comm, 1, r.Size)), cohort.ErrRoot, "Bcast from a root that does not exist")
		r.is(values.Send(r.Comm, "", r.Size, 1), cohort.ErrRank, "Send to a rank that does not exist")
		r.is(values.Send(nil, "", 0, 1), cohort.ErrComm, "Send without a communicator")

		// A message of another type is received and dropped.
		req := must.Get(cohort.Isend(r.Comm, []byte("not a value"), r.next, 2))
		r.is(errorOf(values.Recv[string](r.Comm, r.prev, 2)), cohort.ErrType, "Recv of bytes", fmt.Sprintf("rank %d", r.prev))
		must.Get(req.Wait())
		n, err := values.Allreduce(r.Comm, 1, func(a, b int) int { return a + b })
		r.got("Allreduce afterwards", err, n, r.Size)
	})
}

// TestRanksLearnOfAnUnknownType has one rank pass a value that cannot be encoded: an interface with an unknown type. It
// gets ErrType, those who need its value get ErrMismatch that names it, and the communicator stays usable.
func TestRanksLearnOfAnUnknownType(t *testing.T) {
	onRanks(t, 2, func(r *rank) {
		type unknown struct{ X int }
		for _, bad := range []int{0, r.Size - 1} {
			var x any = r.Rank
			if r.Rank == bad {
				x = unknown{1}
			}
			xs := slices.Repeat([]any{x}, r.Size)
			first := func(a, b any) any { return a }
			_, bcast := values.Bcast(r.Comm, x, bad)
			_, gather := values.Gather(r.Comm, x, 0)
			_, allgather := values.Allgather(r.Comm, x)
			_, scatter := values.Scatter(r.Comm, xs, bad)
			_, alltoall := values.Alltoall(r.Comm, xs)
			_, reduce := values.Reduce(r.Comm, x, first, 0)
			_, allreduce := values.Allreduce(r.Comm, x, first)
			for what, e := range map[string]struct {
				err  error
				root bool // only rank 0 needs the value
			}{
				"Bcast": {bcast, false}, "Gather": {gather, true}, "Allgather": {allgather, false}, "Scatter": {scatter, false},
				"Alltoall": {alltoall, false}, "Reduce": {reduce, true}, "Allreduce": {allreduce, false},
			} {
				switch {
				case r.Rank == bad:
					r.is(e.err, cohort.ErrType, fmt.Sprintf("%s of an unknown type, which this rank passed", what))
				case e.root && r.Rank != 0:
					must.OK(e.err)
				default:
					r.is(e.err, cohort.ErrMismatch, fmt.Sprintf("%s of an unknown type on rank %d", what, bad), fmt.Sprintf("rank %d", bad), "not registered")
				}
			}
			_, err := values.Scatter(r.Comm, make([]int, r.Size-1), bad)
			if r.Rank == bad {
				r.is(err, cohort.ErrCount, "Scatter of few values")
			} else {
				r.is(err, cohort.ErrMismatch, fmt.Sprintf("Scatter of few values from rank %d", bad))
			}
		}
	})
}

// A stubborn value ends the goroutine of its method, or panics.
type stubborn string

var stubbornFunctions = map[stubborn]func(){"Goexit": runtime.Goexit, "on purpose": func() { panic("on purpose") }}

func (s stubborn) fail(method string) {
	if what, ok := strings.CutPrefix(string(s), method); ok {
		stubbornFunctions[stubborn(what)]()
	}
}

func (s stubborn) MarshalBinary() ([]byte, error) {
	s.fail("encode ")
	return []byte(s), nil
}

func (s *stubborn) UnmarshalBinary(b []byte) error {
	*s = stubborn(b)
	s.fail("decode ")
	return nil
}

// TestMethodsThatPanicOrEndTheirGoroutine calls functions and methods of the user that panic, or end their goroutine: those that encode a value
// of the last rank, decode it on rank 0, and combine it. That rank gets an error, and the others ErrMismatch.
func TestMethodsThatPanicOrEndTheirGoroutine(t *testing.T) {
	onRanks(t, 2, func(r *rank) {
		last := r.Size - 1
		for _, what := range []string{"Goexit", "on purpose"} {
			for _, when := range []string{"encode ", "decode ", "combine "} {
				who, want, x := 0, cohort.ErrType, stubborn("")
				if r.Rank == last {
					x = stubborn(when + what)
				}
				switch when {
				case "encode ":
					who = last
				case "combine ":
					want = cohort.ErrOp
				}
				_, err := values.Allreduce(r.Comm, x, func(a, b stubborn) stubborn {
					b.fail("combine ")
					return a
				})
				if r.Rank != who {
					want = cohort.ErrMismatch
				}
				r.is(err, want, fmt.Sprintf("%s%s on rank %d", when, what, who), what)
			}
		}
		must.OK(r.Comm.Barrier())
	})
}

// TestDeadlinesOfValues has one rank stay away.
func TestDeadlinesOfValues(t *testing.T) {
	onRanks(t, 2, func(r *rank) {
		d := must.Get(r.Comm.Dup())
		if r.Rank == 1 { // only one: its deadline ends the call of the others
			c, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			r.is(errorOf(values.Allgather(d.WithContext(c), "a")), cohort.ErrTimeout, "Allgather without the other ranks")
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		r.is(errorOf(values.Recv[string](r.Comm.WithContext(ctx), cohort.AnySource, 9)), cohort.ErrTimeout, "Recv of a value that is not sent")
		must.OK(r.Comm.Barrier())
		must.OK(d.Close())
	})
}
