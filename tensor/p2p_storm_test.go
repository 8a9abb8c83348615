package tensor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

// Messages of all lengths and tags, started in random order by two goroutines of each rank, arrive
// as the model says: receive k for a rank and a tag gets message k of that rank with that tag.
func TestManyMessagesMatchInOrder(t *testing.T) {
	onRanks(t, []int{2, 4}, func(_ *testing.T, world *cohort.Comm) error { return storm(world, 150) })
}

// stormTags counts tags: even ones are received from one rank, odd ones from any rank.
const stormTags = 6

// stormSend is message k from its source to dest with its tag.
type stormSend struct{ source, dest, tag, k int }

func (s stormSend) seed() int { return s.source*100000 + s.tag*10000 + s.k }

// stormShape is the shape of the messages with a tag.
func stormShape(tag int) []int {
	return [][]int{{3}, {10, 30}, {700}, {0, 4}, {1, 1}, {260}}[tag]
}

// stormPlan returns the messages that all ranks send, in order. It is the same on all ranks.
func stormPlan(ranks, messages int) [][]stormSend {
	r := rand.New(rand.NewPCG(7, uint64(ranks)))
	sent := make(map[stormSend]int)
	plan := make([][]stormSend, ranks)
	for range messages * ranks {
		s := stormSend{source: r.IntN(ranks), dest: r.IntN(ranks), tag: r.IntN(stormTags)}
		k := sent[s]
		sent[s]++
		s.k = k
		plan[s.source] = append(plan[s.source], s)
	}
	return plan
}

// stormRecv is a pending receive.
type stormRecv struct {
	h           *Handle
	t           *Tensor[float32]
	source, tag int
}

func storm(world *cohort.Comm, messages int) error {
	c := must.Get(messageComm(world))
	devs, drv, err := messageDevices(soft.Config{})
	if err != nil {
		return err
	}
	me := c.Rank()
	plan := stormPlan(c.Size(), messages)
	var both sync.WaitGroup
	errs := make([]error, 2)
	for part := range errs { // tags 0 to 2, and 3 to 5
		both.Go(func() {
			errs[part] = stormPart(c, devs, plan, me, func(tag int) bool { return tag/3 == part }, uint64(part))
		})
	}
	both.Wait()
	// When all other ranks have closed, a receive from any source ends with ErrPeerLost, even if
	// this rank is about to send to itself.
	err = errors.Join(append(errs, world.Barrier())...)
	return errors.Join(err, c.Close(), left(devs, drv))
}

// stormPart sends and receives the messages with some of the tags.
func stormPart(c *Comm, devs []*Device, plan [][]stormSend, me int, mine func(tag int) bool, seed uint64) (err error) {
	r := rand.New(rand.NewPCG(seed, uint64(me)))
	var sends []stormSend
	var recvs []stormRecv
	for source := range plan {
		for _, s := range plan[source] {
			if !mine(s.tag) {
				continue
			}
			if s.source == me {
				sends = append(sends, s)
			}
			if s.dest == me {
				q := stormRecv{source: s.source, tag: s.tag}
				if s.tag%2 == 1 {
					q.source = cohort.AnySource
				}
				recvs = append(recvs, q)
			}
		}
	}
	r.Shuffle(len(recvs), func(i, j int) { recvs[i], recvs[j] = recvs[j], recvs[i] })
	var all []*Handle
	var tensors []*Tensor[float32]
	defer func() {
		for _, t := range tensors {
			err = errors.Join(err, t.Close())
		}
	}()
	for i, k := 0, 0; i < len(sends) || k < len(recvs); {
		d := devs[r.IntN(len(devs))]
		var h *Handle
		if k == len(recvs) || i < len(sends) && r.IntN(2) == 0 {
			s := sends[i]
			i++
			t, err := stuff[float32](d, s.seed(), stormShape(s.tag)...)
			if err != nil {
				return err
			}
			tensors = append(tensors, t)
			if h, err = Isend(c, t, s.dest, s.tag); err != nil {
				return err
			}
		} else {
			q := &recvs[k]
			k++
			if q.t, err = NewOn[float32](d, stormShape(q.tag)...); err != nil {
				return err
			}
			tensors = append(tensors, q.t)
			if h, err = Irecv(c, q.t, q.source, q.tag); err != nil {
				return err
			}
			q.h = h
		}
		all = append(all, h)
	}
	waits := slices.Clone(all)
	r.Shuffle(len(waits), func(i, j int) { waits[i], waits[j] = waits[j], waits[i] })
	for range len(waits) / 2 { // any of them, in any order
		i, _, err := WaitAny(waits...)
		if err != nil {
			return err
		}
		waits[i] = nil
	}
	if err := WaitAll(waits...); err != nil {
		return err
	}
	next := make(map[stormSend]int)
	for _, q := range recvs {
		st, err := q.h.Wait()
		if err != nil {
			return err
		}
		s := stormSend{source: st.Source, dest: me, tag: st.Tag}
		if q.tag != s.tag || q.source != s.source && q.source != cohort.AnySource {
			return fmt.Errorf("a receive from %d with tag %d has the status %+v", q.source, q.tag, st)
		}
		k := next[s]
		next[s]++
		s.k = k
		if err := holds(q.t, s.seed(), stormShape(s.tag)...); err != nil {
			return fmt.Errorf("rank %d: message %d from %d with tag %d: %w", me, s.k, s.source, s.tag, err)
		}
	}
	return nil
}

// Receives and matched probes get the messages with a tag in the order in which they were sent.
func TestProbesAndReceivesKeepOrder(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		c, err := messageComm(world)
		if err != nil {
			return err
		}
		const messages, receivers = 40, 3
		other := 1 - c.Rank()
		var all sync.WaitGroup
		errs := make(chan error, 2*receivers+1)
		all.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(c.Rank())))
			left := make([]int, receivers)
			for i := 0; i < receivers*messages; {
				tag := r.IntN(receivers)
				if left[tag] == messages {
					continue
				}
				t, err := stuff[int16](CPU, left[tag], 1+600*(left[tag]%2))
				if err == nil {
					err = Send(c, t, other, tag)
				}
				if err != nil {
					errs <- err
					return
				}
				left[tag]++
				i++
			}
		})
		for tag := range receivers {
			all.Go(func() {
				r := rand.New(rand.NewPCG(4, uint64(tag)))
				for k := range messages {
					shape := []int{1 + 600*(k%2)}
					t, err := New[int16](shape...)
					if err != nil {
						errs <- err
						return
					}
					switch r.IntN(4) {
					case 0:
						_, err = Recv(c, t, other, tag)
					case 1:
						var h *Handle
						if h, err = Irecv(c, t, cohort.AnySource, tag); err == nil {
							err = WaitAll(h)
						}
					case 2:
						var m *Message
						if m, _, err = c.Mprobe(other, tag); err == nil {
							_, err = MessageRecv(m, t)
						}
					default:
						m, _, ok, e := c.Improbe(cohort.AnySource, tag)
						for ; !ok && e == nil; m, _, ok, e = c.Improbe(cohort.AnySource, tag) {
							runtime.Gosched()
						}
						if err = e; err == nil {
							_, err = MessageRecv(m, t)
						}
					}
					if err == nil {
						err = holds(t, k, shape...)
					}
					if err != nil {
						errs <- fmt.Errorf("message %d with tag %d: %w", k, tag, err)
						return
					}
				}
			})
		}
		all.Wait()
		close(errs)
		for e := range errs {
			err = errors.Join(err, e)
		}
		return errors.Join(err, world.Barrier(), c.Close())
	})
}
