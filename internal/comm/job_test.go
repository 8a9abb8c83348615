package comm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// A rank that fails later does not say that it follows another one, after that one has left, or after a Shrink without it.
func TestRankFollowsNoneThatItGoesOnWithout(t *testing.T) {
	for name, shrinks := range map[string]bool{"left": false, "shrink": true} {
		dir := t.TempDir()
		says := func() bool {
			_, err := os.Stat(filepath.Join(dir, "follows-0"))
			return err == nil
		}
		ranksOn(t, 2, Options{RunDir: dir}, func(bc backend.Comm) backend.Comm { return bc }, func(w *Comm) error {
			switch {
			case w.Rank() == 1 && shrinks:
				_ = w.CloseWith(errors.New("a mistake"))
				return nil
			case w.Rank() == 1:
				return w.Close()
			}
			lost := func() error {
				_, err := w.Recv("recv", pair, make([]byte, 16), nil, 1, 0, nil)
				return err
			}
			if err := lost(); !errors.Is(err, backend.ErrPeerLost) || says() != shrinks {
				t.Errorf("%s: got %v, want ErrPeerLost; rank 0 says that it follows: %v", name, err, says())
			}
			if shrinks {
				must.Get(w.Shrink())
				if err := lost(); !errors.Is(err, backend.ErrPeerLost) {
					t.Errorf("%s: got %v, want ErrPeerLost", name, err)
				}
			}
			_ = w.CloseWith(errors.New("a mistake of its own"))
			if says() || w.core.job.follows.Load() {
				t.Errorf("%s: rank 0 says that it follows another one", name)
			}
			return nil
		})
	}
}
