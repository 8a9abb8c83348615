package cohort

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/must"
)

func TestNilCommReturnsErrors(t *testing.T) {
	var c *Comm
	if c.Rank() != Undefined || c.Size() != 0 || c.Name() != "" || c.Backend() != "" || c.WithContext(context.Background()) != nil || c.Group().Size() != 0 || c.Lost() != nil {
		t.Error("a nil Comm has properties")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"abort":   c.Abort(1),
		"barrier": c.Barrier(),
		"split":   func() error { return second(c.Split(0, 0)) }(),
		"dup":     func() error { return second(c.Dup()) }(),
		"shared":  func() error { return second(c.SplitShared()) }(),
		"cart":    func() error { return second(c.CartCreate([]int{1}, []bool{true}, false)) }(),
		"agree":   func() error { return second(c.Agree(1)) }(),
		"shrink":  func() error { return second(c.Shrink()) }(),
		"revoke":  c.Revoke(),
		"group":   func() error { return second(c.CreateGroup(nil, 0)) }(),
		"igather": func() error { return second(Igather(c, []int{1}, nil, 0)) }(),
		"scatter": func() error { return second(Iscatter(c, []int{1}, []int{1}, 0)) }(),
	} {
		if !errors.Is(err, ErrComm) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestClosedWorldReturnsErrClosed(t *testing.T) {
	ranks(t, 3, func(w *Comm) error {
		d := must.Get(w.Dup())
		p := must.Get(RecvInit(d, make([]int, 1), 0, 0))
		must.OK(w.Barrier())
		for range 2 {
			must.OK(w.Close())
		}
		for name, c := range map[string]*Comm{"world": w, "derived": d, "handle": w.WithContext(context.Background())} {
			_, split := c.Split(0, 0)
			_, group := c.CreateGroup(c.Group(), 0)
			_, start := Iallreduce(c, []int{1}, []int{1}, Sum)
			for op, err := range map[string]error{
				"send": Send(c, []int{1}, 0, 0), "barrier": c.Barrier(), "split": split, "group": group, "iallreduce": start, "abort": c.Abort(0),
			} {
				if !errors.Is(err, ErrClosed) {
					t.Errorf("%s of the closed %s: %v", op, name, err)
				}
			}
			if err := c.Close(); err != nil {
				t.Errorf("Close of the closed %s: %v", name, err)
			}
		}
		return wantErr("a persistent operation", p.Start(), ErrClosed)
	})
}

func TestWithContextEndsOperations(t *testing.T) {
	type key struct{}
	root, stop := context.WithCancel(context.Background())
	defer stop()
	err := Run(root, 1, func(w *Comm) error {
		if w.WithContext(context.Background()) != w || w.WithContext(root) != w {
			t.Error("a context that adds nothing makes another handle")
		}
		ctx, cancel := context.WithCancel(context.WithValue(root, key{}, 1))
		h := w.WithContext(ctx)
		if h == w || h.WithContext(ctx) != h || h.WithContext(root) != w {
			t.Error("handles of one context are not the same")
		}
		cancel()
		_, err := Recv(h, make([]int, 1), 0, 0)
		if err := wantErr("recv after cancel", err, ErrCanceled); err != nil {
			return err
		}
		// The message is still there for the handle that has time.
		q, err := Isend(w, []int{4}, 0, 0)
		if err != nil {
			return err
		}
		got := make([]int, 1)
		if _, err := Recv(w, got, 0, 0); err != nil || got[0] != 4 {
			return fmt.Errorf("recv: %v, %w", got, err)
		}
		if _, err := q.Wait(); err != nil {
			return err
		}
		// The world's context ends the operations of a handle with another one.
		other, release := context.WithCancel(context.Background())
		defer release()
		h = w.WithContext(other)
		stop()
		_, err = Recv(h, got, 0, 0)
		return wantErr("recv after the world's cancel", err, ErrCanceled)
	})
	if err != nil {
		t.Error(err)
	}
}

// The earlier deadline applies, with ErrTimeout and not ErrCanceled.
func TestWithContextEarlierDeadlineWins(t *testing.T) {
	for _, c := range []struct{ world, handle time.Duration }{{5 * time.Millisecond, time.Hour}, {time.Hour, 5 * time.Millisecond}} {
		ctx, cancel := context.WithTimeout(context.Background(), c.world)
		err := Run(ctx, 1, func(w *Comm) error {
			ctx, cancel := context.WithTimeout(context.Background(), c.handle)
			defer cancel()
			_, err := Recv(w.WithContext(ctx), make([]int, 1), 0, 0)
			return wantErr(fmt.Sprint(c), err, ErrTimeout)
		})
		if err != nil {
			t.Error(err)
		}
		cancel()
	}
}

// listContext is a context that == does not accept.
type listContext struct {
	context.Context
	tags []string
}

func TestWithContextThatCannotBeCompared(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	odd := listContext{ctx, []string{"a"}}
	err := Run(odd, 1, func(w *Comm) error {
		err := w.WithContext(odd).Barrier()
		cancel()
		if _, err2 := Recv(w.WithContext(odd), make([]int, 1), 0, 0); !errors.Is(err2, ErrCanceled) {
			err = errors.Join(err, fmt.Errorf("after the end of its context: %v", err2))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// No method of a nil handle panics. The methods that Cart and Graph have from their Comm are called on that.
func TestMethodsOfNilHandlesDoNotPanic(t *testing.T) {
	ofComm := reflect.TypeFor[*Comm]()
	for _, h := range []any{(*Comm)(nil), new(Comm), (*Cart)(nil), (*Graph)(nil), (*Group)(nil), (*Message)(nil), (*Request)(nil),
		(*Persistent)(nil), (*Window[int])(nil), (*SharedRegion[int])(nil),
		(*LockGuard)(nil), (*LockAllGuard)(nil)} {
		v := reflect.ValueOf(h)
		for i := range v.NumMethod() {
			m := v.Type().Method(i)
			if _, promoted := ofComm.MethodByName(m.Name); promoted && v.Type() != ofComm {
				if f, has := v.Type().Elem().FieldByName("Comm"); has && f.Anonymous {
					continue
				}
			}
			var args []reflect.Value
			for j := 1; j < m.Type.NumIn() && !(m.Type.IsVariadic() && j == m.Type.NumIn()-1); j++ {
				args = append(args, reflect.Zero(m.Type.In(j)))
			}
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%v.%s: %v", v.Type(), m.Name, p)
					}
				}()
				v.Method(i).Call(args)
			}()
		}
	}
}
