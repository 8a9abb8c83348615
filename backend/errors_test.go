package backend

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLongRankListsAreShortened(t *testing.T) {
	many := make([]int, 100)
	for i := range many {
		many[i] = 3 * i
	}
	for _, c := range []struct {
		list []int
		want string
	}{
		{[]int{4}, "rank 4"}, {[]int{1, 2}, "ranks 1, 2"}, {[]int{1, 2, 3}, "ranks 1-3"}, {[]int{0, 2, 3, 4, 9}, "ranks 0, 2-4, 9"},
		{many, "ranks 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45 and 84 more"},
	} {
		if got := RankList(c.list); got != c.want {
			t.Errorf("%v: %q, want %q", c.list, got, c.want)
		}
	}
}

// TestFaultsSurviveEncoding checks that another rank can tell what this one can, a departure in good order from a loss among it.
func TestFaultsSurviveEncoding(t *testing.T) {
	for _, f := range []*Fault{
		PeerLeft("rank %d has left", 3), Faultf(ErrPeerLost, "rank 3 died"), Faultf(ErrMismatch, ""), Faultf(syscall.ENOSPC, "disk full"), Faultf(ErrInternal, "x"),
		{Sentinel: ErrCanceled, Text: "terminated", Over: 1 << 16},
	} {
		if got := DecodeFault(f.Encode(100)); *got != *f {
			t.Errorf("%+v arrives as %+v", f, got)
		}
	}
	for _, code := range []byte{0, byte(len(sentinels)), overCode - 1, overCode, errnoCode} { // that of Over lacks the number
		if got := DecodeFault([]byte{code, 'x'}); got.Sentinel != ErrInternal || got.Left || got.Over != 0 {
			t.Errorf("code %d arrives as %+v", code, got)
		}
	}
}

// unnoticed is a context whose deadline has passed and whose timer has not fired.
type unnoticed struct{ context.Context }

func (unnoticed) Deadline() (time.Time, bool) { return time.Now().Add(-time.Hour), true }

// A caller that does not know when an operation began is not told how long it took.
func TestErrOfPassedDeadlineSaysSo(t *testing.T) {
	b := &Bound{Ctx: unnoticed{t.Context()}}
	if err := b.Err(time.Time{}); !errors.Is(err, ErrTimeout) || !strings.HasSuffix(err.Error(), "the context's deadline has passed") {
		t.Errorf("%v", err)
	}
}

// nilError is an error whose methods panic for a nil pointer.
type nilError struct{ err error }

func (e *nilError) Error() string { return e.err.Error() }

// unwraps and compares are errors of which only one method panics.
type unwraps struct{}

func (*unwraps) Error() string   { return "unwraps" }
func (e *unwraps) Unwrap() error { panic("no luck") }

type compares struct{ error }

func (compares) Is(error) bool { panic(compares{}) } // whose text panics too

type converts struct{ error }

func (converts) As(any) bool { panic(nil) }

// An error whose methods panic is replaced by one that names its type and the method.
func TestErrorsWhoseMethodsPanicAreReplaced(t *testing.T) {
	var none *nilError
	for _, c := range []struct {
		err  error
		want string
	}{
		{none, "*backend.nilError panicked in github.com/cohort-hpc/cohort/backend.(*nilError).Error"},
		{errors.Join(ErrType, none), "*errors.joinError panicked in github.com/cohort-hpc/cohort/backend.(*nilError).Error"},
		{&unwraps{}, "*backend.unwraps panicked in github.com/cohort-hpc/cohort/backend.(*unwraps).Unwrap"},
		{compares{ErrType}, "backend.compares panicked in github.com/cohort-hpc/cohort/backend.compares.Is"},
		{converts{ErrType}, "backend.converts panicked in github.com/cohort-hpc/cohort/backend.converts.As"},
	} {
		if got := Harmless(c.err); !strings.HasPrefix(got.Error(), "an error of type "+c.want) || errors.Is(got, ErrType) {
			t.Errorf("%T: %v, want an error of type %s", c.err, got, c.want)
		}
	}
	for _, err := range []error{nil, ErrType, errors.Join(ErrType, Faultf(ErrCount, "3"))} {
		if got := Harmless(err); got != err {
			t.Errorf("%v is replaced by %v", err, got)
		}
	}
}

// The cause of a context can be any error.
func TestCauseWhoseTextPanicsEndsOperation(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	var none *nilError
	cancel(none)
	if err := (&Bound{Ctx: ctx}).Err(time.Time{}); !errors.Is(err, ErrCanceled) || !strings.Contains(err.Error(), "*backend.nilError") {
		t.Errorf("%v, want an ErrCanceled that names the type of the cause", err)
	}
}
