package comm

import (
	"errors"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// noticing calls a function when a rank is about to sleep.
type noticing struct {
	backend.Comm
	sleeps func()
}

func (n noticing) OnWait(f, all func()) {
	n.Comm.OnWait(func() { f(); n.sleeps() }, all)
}

// A send and a receive that the program does not wait for are an error of Close, which names them. A message that the
// other rank receives while Close waits arrives.
func TestCloseReportsWhatWasNotWaitedFor(t *testing.T) {
	typ := &backend.Datatype{Size: 8, Name: "word"}
	for _, what := range []string{"isend", "irecv", "isend with Wait"} {
		t.Run(what, func(t *testing.T) {
			sleeping := make(chan struct{})
			wake := sync.OnceFunc(func() { close(sleeping) })
			wrap := func(bc backend.Comm) backend.Comm {
				if bc.Rank() == 0 {
					return noticing{bc, wake}
				}
				return bc
			}
			ranksOn(t, 2, Options{}, wrap, func(w *Comm) error {
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
					if _, err := w.Irecv("irecv", typ, buf, 1, 7, nil); err != nil {
						return err
					}
				} else {
					q, err := w.Isend("isend", typ, buf, nil, 1, 7, backend.Standard, nil)
					if err != nil {
						return err
					}
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
