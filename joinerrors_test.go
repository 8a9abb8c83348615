package cohort

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
)

func TestJoinErrorsReturnsErrorOfLowestRankEverywhere(t *testing.T) {
	own := []error{
		fmt.Errorf("step 7: %w", errMade),
		&fs.PathError{Op: "open", Path: "input.csv", Err: fs.ErrNotExist},
		fmt.Errorf("block 3: %w: too long", ErrCount),
		errors.New(strings.Repeat("ä", 5000)),
	}
	for failing := range 1 << len(own) {
		err := Run(t.Context(), len(own), func(w *Comm) error {
			var mine, lowest error
			rank := 0
			for r := len(own) - 1; r >= 0; r-- {
				if failing>>r&1 != 0 {
					rank, lowest = r, own[r]
				}
			}
			if failing>>w.Rank()&1 != 0 {
				mine = own[w.Rank()]
			}
			got := JoinErrors(w, mine)
			switch {
			case lowest == nil && got != nil:
				return fmt.Errorf("no rank has an error, but JoinErrors returns %w", got)
			case lowest == nil:
			case got == nil:
				return fmt.Errorf("rank %d has an error, but JoinErrors returns nil", rank)
			case !strings.HasPrefix(got.Error(), fmt.Sprintf("rank %d: %.100s", rank, lowest)):
				return fmt.Errorf("JoinErrors returns %.200q for rank %d's %.200q", got, rank, lowest)
			case mine != nil && !errors.Is(got, mine):
				return fmt.Errorf("JoinErrors returns %w without the rank's own %w", got, mine)
			}
			for _, sentinel := range []error{ErrCount, ErrInternal, ErrPeerLost} {
				if want := lowest != nil && errors.Is(lowest, sentinel) || mine != nil && errors.Is(mine, sentinel); errors.Is(got, sentinel) != want {
					return fmt.Errorf("%.200q wraps %v: want %v", got, sentinel, want)
				}
			}
			return w.Barrier()
		})
		if err != nil {
			t.Errorf("ranks %04b have errors: %v", failing, err)
		}
	}
}

// A rank that returns the error of JoinErrors is named once, in its own error and in what the others learn.
func TestRankIsNamedOnceInErrorOfJoinErrors(t *testing.T) {
	err := Run(t.Context(), 2, func(w *Comm) error {
		var mine error
		if w.Rank() == 1 {
			mine = errMade
		}
		if err := JoinErrors(w, mine); w.Rank() == 1 {
			return err
		}
		return w.Barrier()
	})
	for _, text := range []string{fmt.Sprintf("rank 1: %v", errMade), fmt.Sprintf("rank 1 failed: %v", errMade)} {
		if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "rank 1: rank 1") {
			t.Errorf("%v; want %q", err, text)
		}
	}
}

// An error of JoinErrors itself does not replace the rank's own.
func TestJoinErrorsKeepsOwnErrorIfItFails(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		err := w.Close()
		if err != nil {
			return err
		}
		err = JoinErrors(w, errMade)
		return errors.Join(wantErr("after Close", err, errMade, ErrClosed), isOp(err, "joinerrors"))
	})
	if err := JoinErrors(nil, errMade); wantErr("nil communicator", err, errMade, ErrComm) != nil {
		t.Error(err)
	}
}

// Every rank can tell that a file of another rank does not exist.
func TestJoinErrorsCarriesErrorsOfTheSystem(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		var mine error
		if w.Rank() == 1 {
			_, mine = os.Open(t.Name())
		}
		if err := JoinErrors(w, mine); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrInternal) || !strings.Contains(err.Error(), "rank 1: open "+t.Name()) {
			return fmt.Errorf("got %w, want %v of rank 1", err, fs.ErrNotExist)
		}
		return nil
	})
}

// All ranks learn of an error whose methods panic, of JoinErrors and of CloseWith.
func TestErrorWhoseMethodsPanicReachesAllRanks(t *testing.T) {
	const text = "an error of type *fs.PathError panicked in io/fs.(*PathError).Error"
	ranks(t, 2, func(w *Comm) error {
		var mine error
		if w.Rank() == 1 {
			mine = noPath
		}
		if err := JoinErrors(w, mine); err == nil || !strings.HasPrefix(err.Error(), "rank 1: "+text) {
			return fmt.Errorf("JoinErrors: %v", err)
		}
		err := w.CloseWith(mine)
		if w.Rank() == 0 {
			return err
		}
		if err == nil || !strings.HasPrefix(err.Error(), text) {
			return fmt.Errorf("CloseWith: %v", err)
		}
		return nil
	})
}
