package comm

import (
	"errors"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// noticing calls a function when a rank is about to sleep.
type noticing struct {
	backend.Comm
	sleeps func()
}

func (n noticing) OnWait(f, all func()) {
	n.Comm.OnWait(func() { f(); n.sleeps() }, all)
}

// notices is for ranksOn: rank 0 calls sleeps when it is about to sleep.
func notices(sleeps func()) func(backend.Comm) backend.Comm {
	return func(bc backend.Comm) backend.Comm {
		if bc.Rank() == 0 {
			return noticing{bc, sleeps}
		}
		return bc
	}
}

// A send and a receive that the program does not wait for are an error of Close, which names them. A message that the
// other rank receives while Close waits arrives.
func TestCloseReportsWhatWasNotWaitedFor(t *testing.T) {
	typ := &backend.Datatype{Size: 8, Name: "word"}
	for _, what := range []string{"isend", "irecv", "isend with Wait"} {
		t.Run(what, func(t *testing.T) {
			sleeping := make(chan struct{})
			wake := sync.OnceFunc(func() { close(sleeping) })
			ranksOn(t, 2, Options{}, notices(wake), func(w *Comm) error {
				buf := make([]byte, 1<<20)
				if w.Rank() == 1 {
					<-sleeping // rank 0 has looked for what was not waited for
					if what == "irecv" {
						return nil
					}
					_, err := w.Recv("recv", typ, buf, nil, 0, 7, nil)
					return err
				}
				defer wake()
				if what == "irecv" {
					must.Get(w.Irecv("irecv", typ, buf, 1, 7, nil))
				} else {
					q := must.Get(w.Isend("isend", typ, buf, nil, 1, 7, backend.Standard, nil))
					if what == "isend with Wait" {
						_, err := q.Wait()
						return err
					}
				}
				err := w.Close()
				var op *backend.OpError
				if !errors.Is(err, backend.ErrRequest) || !errors.As(err, &op) || op.Op != "close" || op.Peer != 1 || op.Tag != 7 {
					t.Errorf("Close: %v, want ErrRequest that names peer 1 and tag 7", err)
				}
				return nil
			})
		})
	}
}

// A goroutine begins to wait for a collective while Close waits whether it completes. Then the program waits for it.
func TestCloseLeavesOutWhatIsWaitedForMeanwhile(t *testing.T) {
	closing, waiting := make(chan struct{}), make(chan struct{})
	wake := sync.OnceFunc(func() { close(closing) })
	ranksOn(t, 2, Options{}, notices(wake), func(w *Comm) error {
		if w.Rank() == 1 {
			<-waiting
		}
		q, err := w.Start(&backend.Call{Coll: backend.Barrier, Root: -1})
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			_, err := q.Wait()
			return err
		}
		closed := make(chan error)
		go func() { closed <- w.Close() }()
		<-closing
		q.Done() // which waits in a goroutine
		close(waiting)
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		_, err = q.Wait()
		return err
	})
}
