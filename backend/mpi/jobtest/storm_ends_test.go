//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort"
)

// pair returns two ranks.
func (s *strand) pair() (a, b int) {
	a = s.draw.IntN(s.n)
	return a, (a + 1 + s.draw.IntN(s.n-1)) % s.n
}

// nap sleeps for a time around that of the others' deadlines, another one on each rank and in each step.
func (s *strand) nap() { time.Sleep(time.Duration((s.step*7919+s.me*104729)%400) * time.Microsecond) } // on purpose: steps overlap

// lateReceive has a receive meet its deadline when its message arrives. The message is received then or by the next.
func (s *strand) lateReceive() error {
	a, b := s.pair()
	length, limit := s.length(), time.Duration(50+s.draw.IntN(300))*time.Microsecond
	switch s.me {
	case a:
		ctx, cancel := context.WithTimeout(background, limit)
		defer cancel()
		got := make([]int, length)
		_, err := cohort.Recv(s.c.WithContext(ctx), got, b, s.step)
		if errors.Is(err, cohort.ErrTimeout) {
			_, err = cohort.Recv(s.c, got, b, s.step) // the communicator stays usable
		}
		return errors.Join(err, equal(got, s.data(b, length)))
	case b:
		s.nap()
		return cohort.Send(s.c, s.data(b, length), a, s.step)
	}
	return nil
}

// endAtDeadline ends the strand with an operation whose deadline passes about when it completes. If it returns nil, its
// communicator is not broken on this rank by it.
func (s *strand) endAtDeadline() error {
	s.over = true
	if err := s.settle(); err != nil {
		return err
	}
	// All are here: what is pending on another rank would end with the communicator. That rank may still be in this barrier.
	if err := s.c.Barrier(); errors.Is(err, cohort.ErrTimeout) || errors.Is(err, cohort.ErrBroken) {
		return nil
	} else if err != nil {
		return err
	}
	a, b := s.pair()
	length, kind := s.length(), s.draw.IntN(3)
	limit := time.Duration(50+s.draw.IntN(400)) * time.Microsecond
	if s.me != a { // it learns of the end
		limit = patience / 2
		s.nap()
	}
	ctx, cancel := context.WithTimeout(background, limit)
	defer cancel()
	timed, in, out := s.c.WithContext(ctx), s.data(s.me, length), make([]int, length)
	var err error
	want := out
	switch {
	case kind == 0 && s.me == a:
		err = cohort.Ssend(timed, in, b, s.step)
	case kind == 0 && s.me == b:
		_, err = cohort.Recv(timed, out, a, s.step)
		want = s.data(a, length)
	case kind == 0: // no part in it
	default:
		want = make([]int, length)
		for i := range want {
			want[i] = s.reduced(i)
		}
		if kind == 1 {
			err = waited(cohort.Iallreduce(timed, in, out, cohort.Sum))
		} else {
			err = waited(cohort.Iallreduce(timed, in, out, addInts))
		}
	}
	switch {
	case err == nil:
		if err := equal(out, want); err != nil {
			return err
		}
		if s.me == a {
			if err := cohort.Send(s.c, []int{1}, a, 3000); err != nil {
				return fmt.Errorf("after an operation that has returned nil: %w", err)
			}
		}
	case errors.Is(err, cohort.ErrTimeout), errors.Is(err, cohort.ErrBroken):
	default:
		return err
	}
	return nil
}

// endByClose ends the strand: it closes the communicator while operations are pending. They end, and from then on their
// buffers are the program's.
func (s *strand) endByClose() error {
	s.over = true
	if s.draw.IntN(2) == 0 {
		if err := s.settle(); err != nil {
			return err
		}
	}
	if err := s.c.Barrier(); err != nil { // else a blocking send may wait for a receive that Close ends
		return err
	}
	a, b := s.pair()
	length := 10 * s.length()
	var receives []*cohort.Request
	buffers := [][]int{make([]int, length), make([]int, length)}
	switch s.me {
	case a:
		if _, err := cohort.Isend(s.c, s.data(a, length), b, s.step); err != nil {
			return err
		}
	case b:
		for i, tag := range []int{s.step, 2000 + s.step} {
			q, err := cohort.Irecv(s.c, buffers[i], a, tag)
			if err != nil {
				return err
			}
			receives = append(receives, q)
		}
	}
	s.nap()
	if err := forgetful(s.c.Close()); err != nil {
		return err
	}
	for i, q := range receives {
		_, err := q.Wait()
		switch {
		case err == nil && i == 0:
			if err := equal(buffers[0], s.data(a, length)); err != nil {
				return err
			}
		case errors.Is(err, cohort.ErrClosed):
			clear(buffers[i])
			time.Sleep(time.Millisecond) // on purpose: time for a write that must not come
			if err := equal(buffers[i], make([]int, length)); err != nil {
				return fmt.Errorf("written after the receive had ended: %w", err)
			}
		default:
			return fmt.Errorf("a receive whose communicator was closed: %w", err)
		}
	}
	return nil
}
