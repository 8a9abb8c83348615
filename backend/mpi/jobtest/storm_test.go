//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// TestRandomProgramsGiveRightResults runs random programs: several goroutines of each rank, each with its own
// communicator, send and receive in all forms, start and forget collectives, meet deadlines, cancel, make and close
// communicators, and leave messages behind, with many operations pending at a time. Every result is computed beside it.
// All ranks draw the same program from a seed; only the timing differs between two runs of it.
//
// COHORT_SOAK=n runs the seeds 1 to n in every setting, and COHORT_SOAK=m-n those from m to n.
func TestRandomProgramsGiveRightResults(t *testing.T) {
	rank("storm", func(w *cohort.Comm) error {
		first, last := stormSeeds(os.Getenv(stormVariable))
		for seed := first; seed <= last; seed++ {
			if w.Rank() == 0 {
				say("seed %d", seed)
			}
			if err := storm(w, seed); err != nil {
				return fmt.Errorf("seed %d: %w", seed, err)
			}
		}
		return forgetful(w.Close())
	})
	seeds, settings := "1-4", []string{"COHORT_CHECK=0", "COHORT_CHECK=1", "COHORT_MPI_THREAD=funneled"}
	if testing.Short() {
		seeds = "1-2"
	}
	if soak := os.Getenv("COHORT_SOAK"); soak != "" {
		seeds, settings = soak, append(settings, "COHORT_DETERMINISTIC=1", "COHORT_MPI_THREAD=serialized")
	}
	matrix(t, settings, func(t *testing.T, name, setting string) {
		start(t, name, 2, "storm", setting, stormVariable+"="+seeds).must(t).has(t, "seed ")
	})
}

const stormVariable = "COHORT_TEST_STORM"

func stormSeeds(text string) (first, last uint64) {
	from, to, ok := strings.Cut(text, "-")
	first, _ = strconv.ParseUint(from, 10, 64)
	if !ok {
		return 1, first
	}
	last, _ = strconv.ParseUint(to, 10, 64)
	return first, last
}

// storm runs the program of a seed.
func storm(w *cohort.Comm, seed uint64) error {
	draw := rand.New(rand.NewPCG(seed, 1))
	strands := 1 + draw.IntN(3)
	if w.Caps().ThreadLevel != "multiple" { // only one goroutine may make communicators, or call at all
		strands = 1
	}
	var all sync.WaitGroup
	errs := make([]error, strands)
	for i := range strands {
		c, err := w.Dup()
		if err != nil {
			return err
		}
		s := &strand{c: c, me: w.Rank(), n: w.Size(), draw: rand.New(rand.NewPCG(seed, uint64(10+i)))}
		if strands == 1 {
			errs[i] = s.run()
			continue
		}
		all.Go(func() { errs[i] = s.run() })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("strand %d: %w", i, err)
		}
	}
	return w.Barrier()
}

// strand is what one goroutine of each rank does on its communicator. All ranks draw the same numbers.
type strand struct {
	c     *cohort.Comm
	me, n int
	draw  *rand.Rand
	step  int
	last  []func() error // how operations that are pending end
	over  bool           // the communicator is closed, or may be broken
}

func (s *strand) run() error {
	kinds := []struct {
		name string
		do   func() error
	}{
		{"message", s.message}, {"message", s.message}, {"message", s.message}, {"left behind", s.leaveBehind},
		{"withdrawn", s.withdraw}, {"collective", s.collective}, {"collective", s.collective}, {"blocking collective", s.block},
		{"persistent collective", s.persist}, {"communicator", s.derive}, {"garbage", func() error { runtime.GC(); return nil }},
		{"late receive", s.lateReceive}, {"end at a deadline", s.endAtDeadline}, {"end by Close", s.endByClose},
	}
	for steps := 8 + s.draw.IntN(30); s.step < steps && !s.over; s.step++ {
		k := kinds[s.draw.IntN(len(kinds)-2)]
		if s.step == steps-1 {
			k = kinds[len(kinds)-1-s.draw.IntN(2)]
		}
		if err := k.do(); err != nil {
			return fmt.Errorf("step %d, %s: %w", s.step, k.name, err)
		}
	}
	return forgetful(s.c.Close())
}

// settle ends what is pending, in random order.
func (s *strand) settle() (err error) {
	order := s.draw.Perm(len(s.last))
	for _, i := range order {
		err = errors.Join(err, s.last[i]())
	}
	s.last = nil
	return err
}

// later ends an operation now, or keeps it pending.
func (s *strand) later(end func() error) error {
	if s.draw.IntN(3) == 0 {
		return end()
	}
	s.last = append(s.last, end)
	return nil
}

// content is what element i of the message or operand of a rank is in this step.
func (s *strand) content(rank, i int) int { return s.step*1_000_000 + rank*100_000 + i%1000 }

func (s *strand) data(rank, length int) []int {
	b := make([]int, length)
	for i := range b {
		b[i] = s.content(rank, i)
	}
	return b
}

func (s *strand) length() int { return []int{0, 1, 100, 3000, 40_000}[s.draw.IntN(5)] }

func unhurried() (context.Context, context.CancelFunc) {
	return context.WithTimeout(background, patience/2)
}

// waited waits for an operation that was just started.
func waited(q *cohort.Request, err error) error {
	if err == nil {
		_, err = q.Wait()
	}
	return err
}

// message sends one message in a random form to a random rank, which receives it in a random form.
func (s *strand) message() error {
	length, tag := s.length(), s.step
	from := s.draw.IntN(s.n)
	to := (from + 1 + s.draw.IntN(s.n-1)) % s.n
	sends, receives, source := s.draw.IntN(5), s.draw.IntN(6), from
	if s.draw.IntN(2) == 0 {
		source = cohort.AnySource
	}
	var q *cohort.Request
	var err error
	end := func() error { return waited(q, nil) }
	got := make([]int, length)
	check := func(err error) error {
		if err != nil {
			return err
		}
		return equal(got, s.data(from, length))
	}
	ctx, cancel := unhurried()
	timed := s.c.WithContext(ctx)
	switch {
	case s.me == from:
		b := s.data(from, length)
		switch sends {
		case 0:
			q, err = cohort.Isend(s.c, b, to, tag)
		case 1:
			q, err = cohort.Issend(timed, b, to, tag)
		case 2:
			err = cohort.Ssend(s.c, b, to, tag)
		case 3:
			err = cohort.Send(timed, b, to, tag)
		default:
			err = cohort.Send(s.c, b, to, tag)
		}
	case s.me == to:
		want, step := s.data(from, length), s.step
		whole := func(err error) error {
			if err == nil {
				err = equal(got, want)
			}
			if err != nil {
				return fmt.Errorf("message of step %d: %w", step, err)
			}
			return nil
		}
		switch receives {
		case 0, 1:
			q, err = cohort.Irecv([]*cohort.Comm{s.c, timed}[receives], got, source, tag)
			end = func() error { return whole(waited(q, nil)) }
		case 2:
			_, err = cohort.Recv(s.c, got, source, tag)
			err = check(err)
		case 3:
			_, err = cohort.Recv(timed, got, source, tag)
			err = check(err)
		case 4:
			got, _, err = cohort.RecvAppend[int](s.c, nil, source, tag)
			err = check(err)
		default:
			var m *cohort.Message
			if m, _, err = timed.Mprobe(source, tag); err == nil {
				_, err = cohort.MessageRecv(m, got)
			}
			err = check(err)
		}
	}
	if q == nil {
		cancel()
		end = func() error { return nil }
	} else {
		ended := end
		end = func() error { defer cancel(); return ended() }
	}
	return errors.Join(err, s.later(end))
}

func equal(got, want []int) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d elements, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("element %d of %d is %d, want %d", i, len(got), got[i], want[i])
		}
	}
	return nil
}

// leaveBehind sends a message that nobody receives, and forgets the request.
func (s *strand) leaveBehind() error {
	length, from := s.length(), s.draw.IntN(s.n)
	if s.me != from {
		return nil
	}
	return second(cohort.Isend(s.c, s.data(s.me, length), (from+1)%s.n, 1000+s.step))
}

// withdraw starts receives that get no message, and ends them.
func (s *strand) withdraw() error {
	length, how, rank := s.length(), s.draw.IntN(3), s.draw.IntN(s.n)
	if s.me != rank {
		return nil
	}
	ctx, cancel := context.WithTimeout(background, time.Duration(how)*100*time.Microsecond+time.Microsecond)
	defer cancel()
	b, tag := make([]int, length), 2000+s.step
	if how == 0 {
		q, err := cohort.Irecv(s.c, b, cohort.AnySource, tag)
		if err == nil {
			err = q.Cancel()
		}
		if err = errors.Join(err, waited(q, nil)); !errors.Is(err, cohort.ErrCanceled) {
			return fmt.Errorf("a canceled receive: %v", err)
		}
		return nil
	}
	if _, err := cohort.Recv(s.c.WithContext(ctx), b, (s.me+1)%s.n, tag); !errors.Is(err, cohort.ErrTimeout) {
		return fmt.Errorf("a receive at its deadline: %v", err)
	}
	return nil
}

// reduced is element i of the sum of all ranks' operands.
func (s *strand) reduced(i int) (sum int) {
	for r := range s.n {
		sum += s.content(r, i)
	}
	return sum
}

var addInts = cohort.NewOp(true, func(in, inout []int) {
	for i := range in {
		inout[i] += in[i]
	}
})

// collective starts a nonblocking collective.
func (s *strand) collective() error {
	length, kind, step := s.length(), s.draw.IntN(5), s.step
	in, out, want := s.data(s.me, length), make([]int, length), make([]int, length)
	var q *cohort.Request
	var err error
	switch kind {
	case 0, 1:
		for i := range want {
			want[i] = s.reduced(i)
		}
		q, err = cohort.Iallreduce(s.c, in, out, []cohort.Op{cohort.Sum, addInts}[kind])
	case 2:
		root := s.step % s.n
		want = s.data(root, length)
		if s.me == root {
			out = in
		}
		q, err = cohort.Ibcast(s.c, out, root)
	case 3:
		out, want = make([]int, length*s.n), nil
		for r := range s.n {
			want = append(want, s.data(r, length)...)
		}
		q, err = cohort.Iallgather(s.c, in, out)
	default:
		out, want = nil, nil
		q, err = s.c.Ibarrier()
	}
	if err != nil {
		return err
	}
	return s.later(func() error {
		err := waited(q, nil)
		if err == nil {
			err = equal(out, want)
		}
		if err != nil {
			return fmt.Errorf("collective of step %d: %w", step, err)
		}
		return nil
	})
}

// block makes a blocking collective beside what is pending.
func (s *strand) block() error {
	length, kind := s.length(), s.draw.IntN(3)
	out, want := make([]int, length), make([]int, length)
	for i := range want {
		want[i] = s.reduced(i)
	}
	ctx, cancel := unhurried()
	defer cancel()
	var err error
	switch kind {
	case 0:
		err = s.c.Barrier()
		want = out
	case 1:
		err = cohort.Allreduce(s.c, s.data(s.me, length), out, cohort.Sum)
	default:
		err = cohort.Allreduce(s.c.WithContext(ctx), s.data(s.me, length), out, addInts)
	}
	return errors.Join(err, equal(out, want))
}

// persist makes a persistent collective, starts it, and ends or forgets it.
func (s *strand) persist() error {
	length, starts, ends := s.length(), s.draw.IntN(3), s.draw.IntN(2) == 0
	in, out := s.data(s.me, length), make([]int, length)
	p, err := cohort.AllreduceInit(s.c, in, out, cohort.Sum)
	if err != nil {
		return err
	}
	step := s.step
	want := make([]int, length)
	for i := range want {
		want[i] = s.reduced(i)
	}
	for range starts {
		if _, err := p.Run(); err != nil {
			return err
		}
		if err := equal(out, want); err != nil {
			return fmt.Errorf("persistent collective of step %d: %w", step, err)
		}
	}
	if ends {
		return p.Close()
	}
	return nil
}

// derive makes a communicator, leaves a message behind on some, and closes it or leaves it open.
func (s *strand) derive() error {
	left, open, storm := s.draw.IntN(2) == 0, s.draw.IntN(8) == 0, 1+s.draw.IntN(4)
	for i := range storm {
		d, err := s.c.Dup()
		if err != nil {
			return err
		}
		next, prev, got := (s.me+1)%s.n, (s.me+s.n-1)%s.n, []int{-1}
		if left && i%2 == 0 {
			if _, err := cohort.Isend(d, s.data(s.me, 1+40_000*(i/2)), next, 7); err != nil {
				return err
			}
			if err := forgetful(d.Close()); err != nil { // while the messages are on their way
				return err
			}
			continue
		}
		if _, err := cohort.Sendrecv(d, []int{s.content(s.me, i)}, next, 7, got, prev, 7); err != nil {
			return err
		}
		if got[0] != s.content(prev, i) {
			return fmt.Errorf("got %d on communicator %d, want %d", got[0], i, s.content(prev, i))
		}
		if open {
			continue
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	return nil
}
