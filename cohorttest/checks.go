package cohorttest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort"
)

// Short ways to make a call and to check what it returns.

// must returns what a call returns if it has no error. Otherwise it stops the scenario on this rank, as OK does. The
// watchdog does not see it: a scenario that takes long calls OK or Is too.
func must[T any](x T, err error) T {
	if err != nil {
		panic(stop{err})
	}
	return x
}

// must2 is must for a call with two results.
func must2[S, T any](x S, y T, err error) (S, T) {
	if err != nil {
		panic(stop{err})
	}
	return x, y
}

// errorOf returns the error of a call, which is its last result.
func errorOf(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

// wait returns the error of a nonblocking call, which the call itself or Wait returns.
func wait(q *cohort.Request, err error) error { return errorOf(waited(q, err)()) }

// runOnce runs a persistent operation once, and closes it.
func runOnce(p *cohort.Persistent, err error) error { return errorOf(ranOnce(p, err)()) }

// checked is an error that Is has checked. If it was the right one, the methods check more of it.
type checked struct {
	r    *Rank
	err  error
	what string
	ok   bool
}

// names checks that the error's text contains all the given words.
func (c checked) names(words ...string) checked {
	for _, w := range words {
		if c.ok && !strings.Contains(strings.ToLower(c.err.Error()), strings.ToLower(w)) {
			c.r.Errorf("%s: the error does not name %q: %v", c.what, w, c.err)
		}
	}
	return c
}

// opError checks that the error is an OpError that names the operation and the rank.
func (c checked) opError() checked {
	var op *cohort.OpError
	switch {
	case !c.ok:
	case !errors.As(c.err, &op):
		c.r.Errorf("%s: the error %v is no OpError", c.what, c.err)
	case op.Rank != c.r.Rank || op.Op == "":
		c.r.Errorf("%s: OpError of rank %d, operation %q", c.what, op.Rank, op.Op)
	}
	return c
}

func rankText(rank int) string { return fmt.Sprintf("rank %d", rank) }

// equal checks what a call has returned or received.
func equal[T comparable](r *Rank, got, want T, what string, args ...any) {
	if got != want {
		r.Errorf("%s: got %v, want %v", fmt.Sprintf(what, args...), got, want)
	}
}

// equalSlices checks the elements of a slice. nil is equal to an empty one.
func equalSlices[T comparable](r *Rank, got, want []T, what string, args ...any) {
	if len(got) != len(want) {
		r.Errorf("%s: got %d elements, want %d", fmt.Sprintf(what, args...), len(got), len(want))
		return
	}
	same(r, got, func(i int) T { return want[i] }, what, args...)
}

// only checks that err is nil or wraps one of the given errors.
func (r *Rank) only(err error, what string, allowed ...error) {
	if err != nil && !slices.ContainsFunc(allowed, func(a error) bool { return errors.Is(err, a) }) {
		r.Errorf("%s: %v", what, err)
	}
}

// status checks the status of a message of n elements.
func status[T any](r *Rank, st cohort.Status, source, tag, n int, what string, args ...any) {
	if count := cohort.Count[T](st); st.Source != source || st.Tag != tag || count != n {
		r.Errorf("%s: status %+v, %d elements; want %d from %d with tag %d", fmt.Sprintf(what, args...), st, count, n, source, tag)
	}
}

// noMessage checks that no message has arrived here or at another rank, where none was sent. All ranks call it.
func (r *Rank) noMessage(what string) {
	r.OK(r.Comm.Barrier())
	if st, found := must2(r.Comm.Iprobe(cohort.AnySource, cohort.AnyTag)); found {
		r.Errorf("%s has arrived: %+v", what, st)
	}
	r.OK(r.Comm.Barrier())
}

// same checks the elements of what a call has returned or received.
func same[T comparable](r *Rank, got []T, want func(i int) T, what string, args ...any) {
	for i, x := range got {
		if w := want(i); x != w {
			r.Errorf("%s: element %d of %d is %v, want %v", fmt.Sprintf(what, args...), i, len(got), x, w)
			return
		}
	}
}

// filled returns n elements.
func filled[T any](n int, elem func(i int) T) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = elem(i)
	}
	return s
}
