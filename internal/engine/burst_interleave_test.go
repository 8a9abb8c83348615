//go:build interleave && linux

package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/interleave"
)

// corking is a link through memory of which messages are kept back as on a socket.
type corking struct{ Link }

func (corking) Cork(*frame.Header, []byte) bool { return false }

// A program starts messages of a burst, and then looks at the links no more: flusher writes them all.
func TestInterleaveFlusherWritesBurst(t *testing.T) {
	for _, messages := range []int{1, 3} {
		t.Run(fmt.Sprint(messages), func(t *testing.T) {
			exploreEngines(t, false, interleave.Config{}, func(x *interleave.Run, a, b *comm) {
				p := a.e.peers[1]
				p.link, p.mem, p.inBurst, a.e.burstGap = corking{p.link}, nil, burstMin, time.Hour
				p.begun = time.Since(epoch)
				all := make([]backend.Request, messages)
				x.Go("sender", func() {
					for i := range all {
						all[i].Owner = t
						all[i].Begin()
						a.Isend(&all[i], numbered(2, i), 1, 1, backend.Standard)
					}
				})
				x.Go("flusher", a.e.flusher)
				x.Go("receiver", func() {
					for i := range all {
						buf := make([]byte, 2)
						if err := finished(b, receiving(b, buf, 0)); err != nil || !bytes.Equal(buf, numbered(2, i)) {
							x.Errorf("message %d is %v, %v", i, buf, err)
						}
					}
					a.e.endFlusher()
				})
				x.Check(func() error {
					for i := range all {
						if !all[i].Ready() || all[i].Err != nil {
							return fmt.Errorf("send %d: complete is %v, error %v", i, all[i].Ready(), all[i].Err)
						}
					}
					return nil
				})
			})
		})
	}
}
