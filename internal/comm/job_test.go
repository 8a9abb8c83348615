package comm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// A rank that has gone on after another one left, and fails later, does not say that it follows that one.
func TestRankFollowsNoneThatLeft(t *testing.T) {
	dir := t.TempDir()
	ranksOn(t, 2, Options{RunDir: dir}, func(bc backend.Comm) backend.Comm { return bc }, func(w *Comm) error {
		if w.Rank() == 1 {
			return w.Close()
		}
		if _, err := w.Recv("recv", pair, make([]byte, 16), 1, 0, nil); !errors.Is(err, backend.ErrPeerLost) {
			t.Errorf("got %v, want ErrPeerLost", err)
		}
		_ = w.CloseWith(errors.New("a mistake of its own"))
		if _, err := os.Stat(filepath.Join(dir, "follows-0")); err == nil {
			t.Error("rank 0 says that it follows another one")
		}
		return nil
	})
}
