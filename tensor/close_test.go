package tensor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// All ranks close together while each has operations that the other never joins. Close ends them and names one.
func TestCloseEndsOperationsThatNobodyJoins(t *testing.T) {
	whole := closeFor
	closeFor = 50 * time.Millisecond
	defer func() { closeFor = whole }()
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error { return closeWithoutPeers(world) })
	onProcesses(t, []int{2}, "closeWithoutPeers")
}

func init() {
	programs["closeWithoutPeers"] = func(world *cohort.Comm) error {
		closeFor = 50 * time.Millisecond
		return closeWithoutPeers(world)
	}
}

func closeWithoutPeers(world *cohort.Comm) error {
	ctx, cancel := context.WithCancel(context.Background()) // without it an MPI library keeps operations until the job ends
	defer cancel()
	const n = 1 << 20 // longer than a backend buffers
	me, other := world.Rank(), 1-world.Rank()
	x := zeros[float32](n)
	send := func(c *Comm) (*Handle, error) { return Isend(c, x, other, 5) }
	reduce := func(c *Comm) (*Handle, error) { return Iallreduce(c, x, x, Sum) }
	var all []error
	for _, k := range []struct {
		name  string
		sends bool
		start [2]func(c *Comm) (*Handle, error) // on each rank
		says  [2]string
	}{
		{"sends", true, [2]func(c *Comm) (*Handle, error){send, send}, [2]string{"send to rank 1 with tag 5", "send to rank 0 with tag 5"}},
		{"a collective and a send", true, [2]func(c *Comm) (*Handle, error){reduce, send}, [2]string{"the allreduce", "send to rank 0 with tag 5"}},
		{"a send and collectives", true, [2]func(c *Comm) (*Handle, error){send, func(c *Comm) (*Handle, error) {
			_, err := reduce(c)
			h, err2 := Ibcast(c, zeros[int8](3), 0)
			return h, errors.Join(err, err2)
		}}, [2]string{"send to rank 1 with tag 5", "the bcast"}},
		{"receives without payloads", false, [2]func(c *Comm) (*Handle, error){halfReceive, halfReceive}, [2]string{"receive from rank 1 with tag 6", "receive from rank 0 with tag 6"}},
	} {
		if k.sends && world.Backend() == "mpi" { // where the world's Close reports a send that was never received
			continue
		}
		whole := must.Get(NewComm(world, &Config{Chunk: 4 * n}))
		h, err := k.start[me](whole.WithContext(ctx))
		err = errors.Join(err, world.Barrier())
		closed, ended := whole.Close(), WaitAll(h)
		lost := errors.Is(ended, cohort.ErrPeerLost) // because the other rank was first
		if !lost || closed != nil {
			err = errors.Join(err, wantErr("Close", closed, cohort.ErrRequest, "tensor: close: ", k.says[me]))
		}
		if !lost {
			err = errors.Join(err, wantErr("the operation", ended, cohort.ErrClosed))
		}
		named, e := cohort.AllreduceOne(world, errors.Is(closed, cohort.ErrRequest), cohort.Lor)
		if e == nil && !named {
			e = errors.New("Close names no operation on either rank")
		}
		err = errors.Join(err, e)
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", k.name, err))
		}
	}
	return errors.Join(all...)
}

// halfReceive starts a receive of a message from the other rank, which sends the envelope only.
func halfReceive(c *Comm) (*Handle, error) {
	x := zeros[float32](1 << 20)
	p, err := x.untyped()
	if err != nil {
		return nil, err
	}
	h, err := Irecv(c, x, 1-c.Rank(), 6)
	err = errors.Join(err, cohort.Send(c.head, new(envelope).write(&p, c.cfg.Chunk), 1-c.Rank(), 6))
	until(func() bool {
		c.messages.mu.Lock()
		defer c.messages.mu.Unlock()
		return len(c.messages.inFlight) > 0
	})
	return h, err
}
