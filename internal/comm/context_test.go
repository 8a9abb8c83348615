package comm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// A rank whose world's context has been canceled is lost to the others, in the operation under way and in later ones.
// Canceling the context of one handle is an error of that rank, and no loss. Neither is it a loss if the launcher has noted that
// it asks all ranks to end.
func TestRankIsLostWhenContextOfWorldEnds(t *testing.T) {
	going, ending := t.TempDir(), t.TempDir()
	must.OK(os.WriteFile(filepath.Join(ending, "ending"), nil, 0o600))
	for _, x := range []struct {
		name  string
		world bool // the context is that of the world
		dir   string
		other error
		text  string // of the other rank's errors
	}{
		{"world", true, "", backend.ErrPeerLost, "peer lost: rank 1's context has ended: enough"},
		{"world, under a launcher", true, going, backend.ErrPeerLost, "peer lost: rank 1's context has ended: enough"},
		{"request to end", true, ending, backend.ErrCanceled, "canceled: enough"},
		{"handle", false, "", backend.ErrCanceled, "canceled: enough"},
	} {
		for _, o := range []Options{{RunDir: x.dir}, {RunDir: x.dir, Schedules: true}} {
			ctx, cancel := context.WithCancelCause(context.Background())
			own := context.Background()
			if x.world {
				own = ctx
			}
			bcs := local.New(3) // the last rank does not come
			zero, one := NewWorld(context.Background(), bcs[0], o), NewWorld(own, bcs[1], o)
			first := make(chan error)
			go func() { first <- barrier(zero) }()
			cancel(errors.New("enough"))
			mine := []error{barrier(one.WithContext(ctx)), barrier(one)}
			others := []error{<-first, barrier(zero)}
			for i, err := range mine {
				if !errors.Is(err, backend.ErrCanceled) || errors.Is(err, backend.ErrPeerLost) || errors.Is(err, backend.ErrBroken) != (i > 0) {
					t.Errorf("%s, %v: rank 1, call %d: %v, want %v", x.name, o.Schedules, i, err, backend.ErrCanceled)
				}
			}
			for i, err := range others {
				if !errors.Is(err, x.other) || !strings.Contains(err.Error(), x.text) || i > 0 && !errors.Is(err, backend.ErrBroken) {
					t.Errorf("%s, %v: rank 0, call %d: %v, want %v with %q", x.name, o.Schedules, i, err, x.other, x.text)
				}
			}
			_ = zero.Close()
			_ = one.Close()
		}
	}
}
