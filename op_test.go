package cohort

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/view"
)

func TestOpsApplyToTheirTypes(t *testing.T) {
	arithmetic := []Op{Sum, Prod, Min, Max}
	logic := []Op{Land, Lor, Lxor}
	bits := []Op{Band, Bor, Bxor}
	locs := []Op{MinLoc, MaxLoc}
	check := func(what string, f func(Op) error, good ...[]Op) {
		t.Helper()
		for _, group := range [][]Op{arithmetic, logic, bits, locs} {
			for _, op := range group {
				want := false
				for _, g := range good {
					for _, o := range g {
						want = want || o == op
					}
				}
				err := f(op)
				if want && err != nil || !want && !errors.Is(err, ErrOp) {
					t.Errorf("%v of %s: %v", op, what, err)
				}
			}
		}
		if err := f(Op{}); !errors.Is(err, ErrOp) {
			t.Errorf("the zero Op of %s: %v", what, err)
		}
	}
	check("int", func(op Op) error { return second(opFor[int](op)) }, arithmetic, logic, bits)
	check("index", func(op Op) error { return second(opFor[index](op)) }, arithmetic, logic, bits)
	check("uint8", func(op Op) error { return second(opFor[uint8](op)) }, arithmetic, logic, bits)
	check("float32", func(op Op) error { return second(opFor[float32](op)) }, arithmetic)
	check("celsius", func(op Op) error { return second(opFor[celsius](op)) }, arithmetic)
	check("Float16", func(op Op) error { return second(opFor[Float16](op)) }, arithmetic)
	check("BFloat16", func(op Op) error { return second(opFor[BFloat16](op)) }, arithmetic)
	check("complex", func(op Op) error { return second(opFor[complex128](op)) }, []Op{Sum, Prod})
	check("bool", func(op Op) error { return second(opFor[bool](op)) }, logic)
	check("Loc", func(op Op) error { return second(opFor[Loc[float64]](op)) }, locs)
	check("struct", func(op Op) error { return second(opFor[particle](op)) })
	if _, err := opFor[string](Sum); !errors.Is(err, ErrType) {
		t.Errorf("sum of strings: %v", err)
	}
}

// Apply of a user's operation may write its result to either operand or elsewhere.
func TestUserOpWritesToAnyOperand(t *testing.T) {
	sub := NewOp(false, func(in, inout []int32) {
		for i := range in {
			inout[i] = in[i] - inout[i]
		}
	})
	op, err := opFor[int32](sub)
	if err != nil {
		t.Fatal(err)
	}
	if op.Commutative || op.Type.Size != 4 || sub.String() != "user" {
		t.Errorf("op %+v named %v", op, sub)
	}
	for mode := range 3 {
		a, b, d := []int32{10, 20, 30}, []int32{1, 2, 3}, make([]int32, 3)
		switch mode {
		case 1:
			d = a
		case 2:
			d = b
		}
		op.Apply(view.Bytes(d), view.Bytes(a), view.Bytes(b))
		if d[0] != 9 || d[1] != 18 || d[2] != 27 {
			t.Errorf("mode %d: got %v, want [9 18 27]", mode, d)
		}
		if mode == 1 && b[0] != 1 || mode == 2 && a[0] != 10 {
			t.Errorf("mode %d: the other operand has changed", mode)
		}
	}
	op.Apply(nil, nil, nil)
	if _, err := opFor[uint32](sub); !errors.Is(err, ErrOp) {
		t.Errorf("an operation on int32 used on uint32: %v", err)
	}
	if _, err := opFor[string](NewOp(true, func(_, _ []string) {})); !errors.Is(err, ErrType) {
		t.Errorf("an operation on strings: %v", err)
	}
	if _, err := opFor[int](NewOp[int](true, nil)); !errors.Is(err, ErrOp) {
		t.Errorf("an operation without a function: %v", err)
	}
}

// An operation of one rank that panics, or ends its goroutine, ends the reduction on all ranks and breaks the
// communicator. No goroutine waits any more.
func TestUserOpFails(t *testing.T) {
	fails := map[string]func(){"no such sum": func() { panic("no such sum") }, "Goexit": runtime.Goexit}
	forms := map[string]func(w *Comm, x, y []int, op Op) error{
		"allreduce": func(w *Comm, x, y []int, op Op) error { return Allreduce(w, x, y, op) },
		"scan":      func(w *Comm, x, y []int, op Op) error { return Scan(w, x, y, op) },
		"iallreduce": func(w *Comm, x, y []int, op Op) error {
			q, err := Iallreduce(w, x, y, op)
			if err == nil {
				_, err = q.Wait()
			}
			return err
		},
		"persistent": func(w *Comm, x, y []int, op Op) error {
			p, err := AllreduceInit(w, x, y, op)
			if err == nil {
				err = p.Start()
			}
			if err == nil {
				_, err = p.Wait()
			}
			return err
		},
	}
	for text, fail := range fails {
		for form, call := range forms {
			for _, n := range []int{1, 10000} {
				bad := NewOp(true, func(_, _ []int) { fail() })
				err := Run(context.Background(), 3, func(w *Comm) error {
					err := errors.New("the goroutine has ended (Goexit)")
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						err = call(w, make([]int, n), make([]int, n), bad)
					}()
					<-ended
					alone := form == "scan" && w.Rank() == 0 // may return before the others fail
					if !alone && (err == nil || !strings.Contains(err.Error(), text) && !errors.Is(err, ErrBroken)) {
						t.Errorf("%s of %d, rank %d: %v", form, n, w.Rank(), err)
					}
					if err := w.Barrier(); !errors.Is(err, ErrBroken) && !(alone && errors.Is(err, ErrOp)) {
						t.Errorf("the call after %s of %d, rank %d: %v", form, n, w.Rank(), err)
					}
					return nil
				})
				if err != nil {
					t.Errorf("%s of %d, %s: %v", form, n, text, err)
				}
			}
		}
	}
}
