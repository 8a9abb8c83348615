package cohorttest

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/values"
)

// Values of any type (package values). Their encoding has its own tests there; these show that every
// operation moves them, over every backend.

func valueScenarios() []scenario {
	return []scenario{
		{name: "values/moves", body: valueMoves},
		{name: "values/lengths", body: valueLengths},
		{name: "values/reductions", body: valueReductions},
		{name: "values/wrong", body: wrongValues},
		{name: "values/one-rank-wrong", sizes: atLeast(2), body: oneWrongValue},
		{name: "values/failing-methods", sizes: atLeast(2), body: failingMethods},
		{name: "values/mismatch", sizes: atLeast(2), body: mismatchedValues},
		{name: "values/deadline", sizes: atLeast(2), body: valueDeadline},
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

// sameValue compares what an operation returned with what it must return.
func sameValue(r *Rank, what string, err error, got, want any) {
	r.OK(err)
	if !reflect.DeepEqual(got, want) {
		r.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func valueMoves(r *Rank) {
	c, me, n := r.Comm, r.Rank, r.Size
	next, prev := r.ring()
	const all = -1 // instead of a rank
	if n > 1 {
		if me%2 == 0 {
			r.OK(values.Send(c, paperOf(me, next), next, 5))
		}
		if prev%2 == 0 {
			got, st, err := values.Recv[paper](c, cohort.AnySource, 5)
			sameValue(r, "Recv", err, got, paperOf(prev, me))
			if st.Source != prev || st.Tag != 5 || st.Bytes() < 10 {
				r.Errorf("Recv from %d: status %+v", prev, st)
			}
		}
	}
	got, st, err := values.Recv[paper](c, cohort.ProcNull, 5)
	sameValue(r, "Recv from ProcNull", err, got, paper{})
	if st.Source != cohort.ProcNull {
		r.Errorf("Recv from ProcNull: status %+v", st)
	}
	r.OK(values.Send(c, paperOf(me, me), cohort.ProcNull, 5))

	var parts []paper
	for root := range n {
		got, err := values.Bcast(c, paperOf(me, all), root)
		sameValue(r, "Bcast", err, got, paperOf(root, all))
		gathered, err := values.Gather(c, paperOf(me, root), root)
		var want []paper
		if me == root {
			want = filled(n, func(i int) paper { return paperOf(i, root) })
			parts = filled(n, func(i int) paper { return paperOf(root, i) })
		}
		sameValue(r, "Gather", err, gathered, want)
		got, err = values.Scatter(c, parts, root)
		sameValue(r, "Scatter", err, got, paperOf(root, me))
		parts = nil
	}
	everybody, err := values.Allgather(c, paperOf(me, all))
	sameValue(r, "Allgather", err, everybody, filled(n, func(i int) paper { return paperOf(i, all) }))
	everybody, err = values.Alltoall(c, filled(n, func(i int) paper { return paperOf(me, i) }))
	sameValue(r, "Alltoall", err, everybody, filled(n, func(i int) paper { return paperOf(i, me) }))

	// A pointer may be nil on some ranks.
	var p *paper
	if me%2 == 1 {
		p = &paper{Title: "odd"}
	}
	pointers := must(values.Allgather(c, p))
	for i, q := range pointers {
		if (q != nil) != (i%2 == 1) || q != nil && q.Title != "odd" {
			r.Errorf("Allgather of pointers: %v from rank %d", q, i)
		}
	}
}

// valueLengths sends texts of all lengths, which differ from rank to rank.
func valueLengths(r *Rank) {
	long := 1 << 20
	if !r.Short {
		long = 8 << 20
	}
	text := func(rank, n int) string { return strings.Repeat(string(rune('a'+rank%26)), n) }
	for _, m := range []int{0, 1, 100, 4000, long} {
		root := m % r.Size
		if got := must(values.Bcast(r.Comm, text(r.Rank, m), root)); got != text(root, m) {
			r.Errorf("Bcast of %d bytes returns %d others", m, len(got))
		}
		all := must(values.Allgather(r.Comm, text(r.Rank, m/(1+r.Rank))))
		for i, s := range all {
			if s != text(i, m/(1+i)) {
				r.Errorf("Allgather: %d bytes from rank %d, want %d, or others", len(s), i, m/(1+i))
			}
		}
	}
}

// valueReductions joins texts, which is associative and does not commute, and changes its operands.
func valueReductions(r *Rank) {
	join := func(a, b []string) []string { return append(a, b...) }
	mine, want := []string{fmt.Sprint(r.Rank)}, []string(nil)
	for i := range r.Size {
		want = append(want, fmt.Sprint(i))
	}
	for root := range r.Size {
		if got := must(values.Reduce(r.Comm, mine, join, root)); r.Rank == root && !slices.Equal(got, want) || r.Rank != root && got != nil {
			r.Errorf("Reduce to %d: %v, want %v on the root", root, got, want)
		}
	}
	got, err := values.Allreduce(r.Comm, mine, join)
	sameValue(r, "Allreduce", err, got, want)
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
	sameValue(r, "Allreduce of maps", err, sum, counts)
	if mine[0] != fmt.Sprint(r.Rank) {
		r.Errorf("a reduction has changed its operand to %v", mine)
	}
}

// unsendable has a field that cannot be sent.
type unsendable struct{ Parts []struct{ Fn func() } }

// wrongValues has all ranks pass wrong arguments. The communicator stays usable.
func wrongValues(r *Rank) {
	c := r.Comm
	var x unsendable
	_, _, recv := values.Recv[unsendable](c, 0, 1)
	_, bcast := values.Bcast(c, x, 0)
	_, gather := values.Gather(c, x, 0)
	_, allgather := values.Allgather(c, x)
	_, scatter := values.Scatter(c, make([]unsendable, r.Size), 0)
	_, alltoall := values.Alltoall(c, make([]unsendable, r.Size))
	_, reduce := values.Reduce(c, x, func(a, b unsendable) unsendable { return a }, 0)
	_, allreduce := values.Allreduce(c, x, func(a, b unsendable) unsendable { return a })
	for what, err := range map[string]error{
		"Send": values.Send(c, x, 0, 1), "Recv": recv, "Bcast": bcast, "Gather": gather, "Allgather": allgather,
		"Scatter": scatter, "Alltoall": alltoall, "Reduce": reduce, "Allreduce": allreduce,
	} {
		r.Is(err, cohort.ErrType, "%s of a type with a function", what).opError().names("unsendable.Parts[].Fn", "values."+what)
	}
	_, err := values.Alltoall(c, make([]int, r.Size+1))
	r.Is(err, cohort.ErrCount, "Alltoall of too many values")
	r.Is(errorOf(values.Allreduce(c, 1, nil)), cohort.ErrOp, "Allreduce without a function")
	r.Is(errorOf(values.Bcast(c, 1, r.Size)), cohort.ErrRoot, "Bcast from a root that does not exist")
	r.Is(values.Send(c, "", r.Size, 1), cohort.ErrRank, "Send to a rank that does not exist")
	r.Is(values.Send(nil, "", 0, 1), cohort.ErrComm, "Send without a communicator")

	// A message of another type is received and dropped.
	next, prev := r.ring()
	req := must(cohort.Isend(c, []byte("not a value"), next, 2))
	r.Is(errorOf(values.Recv[string](c, prev, 2)), cohort.ErrType, "Recv of bytes").names(fmt.Sprintf("rank %d", prev))
	must(req.Wait())
	n, err := values.Allreduce(c, 1, func(a, b int) int { return a + b })
	sameValue(r, "Allreduce afterwards", err, n, r.Size)
}

// oneWrongValue has one rank pass a value that cannot be encoded: an interface with an unknown type. It
// gets ErrType, those who need its value get ErrMismatch that names it, and the communicator stays usable.
func oneWrongValue(r *Rank) {
	type unknown struct{ X int }
	c := r.Comm
	for _, bad := range []int{0, r.Size - 1} {
		var x any = r.Rank
		if r.Rank == bad {
			x = unknown{1}
		}
		xs := slices.Repeat([]any{x}, r.Size)
		first := func(a, b any) any { return a }
		_, bcast := values.Bcast(c, x, bad)
		_, gather := values.Gather(c, x, 0)
		_, allgather := values.Allgather(c, x)
		_, scatter := values.Scatter(c, xs, bad)
		_, alltoall := values.Alltoall(c, xs)
		_, reduce := values.Reduce(c, x, first, 0)
		_, allreduce := values.Allreduce(c, x, first)
		for what, e := range map[string]struct {
			err  error
			root bool // only rank 0 needs the value
		}{
			"Bcast": {bcast, false}, "Gather": {gather, true}, "Allgather": {allgather, false}, "Scatter": {scatter, false},
			"Alltoall": {alltoall, false}, "Reduce": {reduce, true}, "Allreduce": {allreduce, false},
		} {
			switch {
			case r.Rank == bad:
				r.Is(e.err, cohort.ErrType, "%s of an unknown type, which this rank passed", what)
			case e.root && r.Rank != 0:
				r.OK(e.err)
			default:
				r.Is(e.err, cohort.ErrMismatch, "%s of an unknown type on rank %d", what, bad).names(rankText(bad), "not registered")
			}
		}
		_, err := values.Scatter(c, make([]int, r.Size-1), bad)
		if r.Rank == bad {
			r.Is(err, cohort.ErrCount, "Scatter of few values")
		} else {
			r.Is(err, cohort.ErrMismatch, "Scatter of few values from rank %d", bad)
		}
	}
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

// failingMethods calls functions and methods of the user that panic, or end their goroutine: those that encode a value
// of the last rank, decode it on rank 0, and combine it. That rank gets an error, and the others ErrMismatch.
func failingMethods(r *Rank) {
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
			r.Is(err, want, "%s%s on rank %d", when, what, who).names(what)
		}
	}
	r.OK(r.Comm.Barrier())
}

// mismatchedValues has one rank call another operation.
func mismatchedValues(r *Rank) {
	oneDiffers(r, false, r.dup, oddComm{"Bcast and Allgather of values",
		func(c *cohort.Comm) error { return errorOf(values.Allgather(c, "a")) },
		func(c *cohort.Comm) error { return errorOf(values.Bcast(c, "a", 0)) }, []string{"values.length", "AllgathervAppend"}})
}

// valueDeadline has one rank stay away.
func valueDeadline(r *Rank) {
	d := must(r.Comm.Dup())
	if r.Rank == 1 { // only one: its deadline ends the call of the others
		c, begun, cancel := deadline(d)
		_, err := values.Allgather(c, "a")
		timedOut(r, "Allgather of values", begun, err)
		cancel()
	}
	ctx, cancel := context.WithTimeout(context.Background(), short)
	defer cancel()
	r.Is(errorOf(values.Recv[string](r.Comm.WithContext(ctx), cohort.AnySource, 9)), cohort.ErrTimeout, "Recv of a value that is not sent")
	r.OK(r.Comm.Barrier())
	r.OK(d.Close())
}
