package cohort

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

var errTired = errors.New("tired")

// survive runs body on n ranks of which the ones in lost give up first, and wants the others to have
// no error.
func survive(t *testing.T, n int, lost []int, body func(c *Comm) error) {
	t.Helper()
	err := Run(context.Background(), n, func(world *Comm) error {
		if slices.Contains(lost, world.Rank()) {
			return errTired
		}
		return must.Return(body)(world)
	})
	var all []error
	if err != nil {
		all = err.(interface{ Unwrap() []error }).Unwrap()
	}
	for _, err := range all {
		if !errors.Is(err, errTired) {
			t.Error(err)
		}
	}
	if len(all) < len(lost) {
		t.Errorf("Run returned %d errors, want %d: %v", len(all), len(lost), all)
	}
}

// plain hides what a backend can do beyond backend.Comm.
type plain struct{ backend.Comm }

func TestRecoveryIsErrNotSupportedWithoutRecovery(t *testing.T) {
	onWorlds(t, 1, settings{}, func(bc backend.Comm) backend.Comm { return plain{bc} }, func(world *Comm) error {
		for _, err := range []error{second(world.Agree(1)), second(world.Shrink()), world.Revoke()} {
			if !errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "use local, shm or tcp") {
				t.Errorf("got %v", err)
			}
		}
		if world.Lost() != nil {
			t.Error("lost ranks")
		}
		return world.Barrier() // the communicator has been given back
	})
}

func second[T any](_ T, err error) error { return err }

func TestAgreeDuringCollectiveIsErrBusy(t *testing.T) {
	ranks(t, 2, func(world *Comm) error {
		if world.Rank() == 1 {
			must.Get(Recv(world, make([]int, 1), 0, 0))
			return second(world.Agree(1))
		}
		var wg sync.WaitGroup
		var err error
		wg.Go(func() {
			for err = ErrBusy; errors.Is(err, ErrBusy); { // of the calls below, until it has begun
				_, err = world.Agree(1)
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for h := world.WithContext(ctx); !errors.Is(second(h.Agree(1)), ErrBusy); {
		}
		for _, err := range []error{second(world.Agree(1)), second(world.Shrink()), world.Barrier()} {
			if !errors.Is(err, ErrBusy) {
				t.Errorf("during an Agree: %v", err)
			}
		}
		err2 := Send(world, []int{1}, 1, 0)
		wg.Wait()
		return errors.Join(err, err2)
	})
}

// Agree and Shrink cannot recover an aborted job.
func TestAgreeFailsAfterAbort(t *testing.T) {
	ranks(t, 3, func(world *Comm) error {
		if world.Rank() == 2 {
			return world.Abort(9)
		}
		for _, err := range []error{second(world.Agree(1)), second(world.Shrink())} {
			if !errors.Is(err, ErrPeerLost) || !strings.Contains(err.Error(), "rank 2 aborted the job with code 9") {
				return fmt.Errorf("in an aborted job: %w", err)
			}
		}
		return nil
	})
}

// A rank that the others have declared lost gets ErrPeerLost.
func TestAgreeOnExcludedRankIsErrPeerLost(t *testing.T) {
	declared := make(chan struct{})
	ranks(t, 3, func(world *Comm) error {
		if world.Rank() == 0 {
			world.base().Backend().Declare(2, errors.New("silent for an hour"))
			close(declared)
		}
		<-declared
		if world.Rank() == 2 {
			for _, err := range []error{second(world.Agree(1)), second(world.Shrink())} {
				if !errors.Is(err, ErrPeerLost) || !strings.Contains(err.Error(), "rank 2 was declared lost: silent for an hour") {
					return fmt.Errorf("on the rank declared lost: %w", err)
				}
			}
			return nil
		}
		d, err := world.Shrink()
		if err == nil && d.Size() != 2 {
			err = fmt.Errorf("%d ranks are left, want 2", d.Size())
		}
		return err
	})
}

// Without a launcher, a next world of tcp is told where the first one met, and which ranks of it are left, however often
// the ranks rejoin.
func TestNextWorldKnowsFirst(t *testing.T) {
	const at = "127.0.0.1:7700"
	survive(t, 3, []int{0}, func(world *Comm) error {
		var found []string
		r := &rejoiner{protocol: &survivors{ranks: []int{2, 5, 7}}, first: settings{Config: Config{Job: "job", TCP: TCPConfig{Coordinator: at}}}}
		r.open = func(_ context.Context, s settings) (backend.Comm, error) {
			found = append(found, fmt.Sprint(s.Job, s.first.coordinator, s.TCP.Coordinator, s.first.job, s.first.ranks))
			return nil, errTired
		}
		for range 2 {
			if _, err := r.next(t.Context(), world.base()); !errors.Is(err, errTired) {
				return fmt.Errorf("rank %d: %v", world.Rank(), err)
			}
		}
		for i, got := range found[:min(len(found), 2*generation.MostFailures)] { // afterwards the other one may have left
			name := "job.1"
			if i > 0 {
				name = fmt.Sprint(name, ".", i+1)
			}
			if want := fmt.Sprint(name, at, "", "job", []int{5, 7}); got != want {
				return fmt.Errorf("rank %d, attempt %d: %q, want %q", world.Rank(), i, got, want)
			}
		}
		if len(found) < 2 {
			return fmt.Errorf("%d attempts", len(found))
		}
		return nil
	})
}
