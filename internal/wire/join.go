package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// send writes a frame of the rendezvous, by a deadline.
func (c *Conn) send(kind frame.Kind, payload []byte, by time.Time) error {
	if c.enc == nil { // only then: receive, in another goroutine, uses what Frames sets
		c.Frames(0)
	}
	h := frame.Header{Kind: kind, Length: uint64(len(payload))}
	if len(payload) > 0 {
		h.Flags, h.Sum = frame.FlagSummed, frame.Sum(0, payload)
	}
	var head [frame.HeaderSize]byte
	c.enc.Encode(&head, &h)
	if err := c.SetWriteDeadline(by); err != nil {
		return err
	}
	// The table of a large job is long, and goes to every rank: it is not copied.
	if _, err := (&net.Buffers{head[:], payload}).WriteTo(c); err != nil {
		return err
	}
	return c.SetWriteDeadline(time.Time{})
}

// receive reads a frame with a payload of at most limit bytes, and no byte beyond it. It may run
// concurrently with send once a frame has been sent or received.
func (c *Conn) receive(limit uint64) (frame.Kind, []byte, error) {
	_, dec := c.Frames(limit)
	var head [frame.HeaderSize]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	var h frame.Header
	if err := dec.Decode(&h, &head); err != nil {
		return 0, nil, err
	}
	payload := make([]byte, h.Payload())
	if _, err := io.ReadFull(c, payload); err != nil {
		return 0, nil, err
	}
	return h.Kind, payload, h.CheckPayload(payload)
}

// fault returns an error of the rendezvous.
func fault(sentinel error, format string, facts ...any) error {
	return &backend.Fault{Sentinel: sentinel, Text: fmt.Sprintf(format, facts...)}
}

// Join makes this process a rank of its job. It connects to the coordinator at address (HOST:PORT),
// which is rank to or the Launcher and may not listen yet, sends self, and waits for the other ranks.
// It returns all members, and the connection to the coordinator.
//
// That connection stays open: the ranks learn from it whether all of them have connected to each other
// ([Conn.Confirm]).
//
// Join ends when ctx does. An error at the coordinator is the same on every rank. It names the ranks
// that are missing, that joined twice, or that have another size.
func Join(ctx context.Context, id *Identity, address string, to int, self Member) ([]Member, *Conn, error) {
	host, port, err := ParseCoordinator(address)
	if err == nil {
		err = self.check()
	}
	if err == nil && self.Rank != id.Rank {
		err = fmt.Errorf("rank %d joins as rank %d", id.Rank, self.Rank)
	}
	if err != nil {
		return nil, nil, fault(backend.ErrInit, "%v", err)
	}
	d := dialing{id: id, to: to, purpose: Rendezvous, patient: true}
	d.find = func(ctx context.Context) ([]netip.AddrPort, error) {
		found, err := lookup(ctx, host)
		addrs := make([]netip.AddrPort, len(found))
		for i, a := range found {
			addrs[i] = netip.AddrPortFrom(a, port)
		}
		return addrs, err
	}
	for {
		conn, err := d.run(ctx)
		if err != nil {
			if !errors.Is(err, backend.ErrTimeout) && !errors.Is(err, backend.ErrCanceled) {
				err = &backend.Fault{Sentinel: backend.ErrInit, Text: fmt.Sprintf("the coordinator at %s: %v", address, err)}
			}
			return nil, nil, err
		}
		members, in, err := join1(ctx, conn, id, self)
		if err == nil {
			return members, conn, nil
		}
		conn.Close()
		if in || ctx.Err() != nil {
			return nil, nil, err
		}
		// The coordinator closed this connection and has not admitted this rank: it was too slow, or the
		// rendezvous has ended, which the next attempt finds out.
		rest(ctx, firstPause+rand.N(longestPause/4))
	}
}

// join1 joins over a connection, and reports whether the coordinator has admitted this rank. After that,
// the end of the connection means the end of the coordinator.
func join1(ctx context.Context, c *Conn, id *Identity, self Member) (members []Member, in bool, err error) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		c.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-over
			// A result that is there in spite of it counts, unless it is an error.
			c.SetDeadline(time.Time{})
		}
	}()
	j := joining{size: id.Size, member: self}
	if end, ok := ctx.Deadline(); ok {
		j.patience = uint32(min(max(time.Until(end).Milliseconds(), 1), 1<<31))
	}
	lost := func(err error) error {
		if ctx.Err() != nil {
			return ended(ctx, "waiting for the other ranks of the job; the coordinator has not reported which are missing")
		}
		return fault(backend.ErrPeerLost, "lost the coordinator, %s at %s, before all ranks had joined: %v", who(c.Rank), remote(c), err)
	}
	if err := c.send(frame.Join, j.append(nil), time.Time{}); err != nil {
		return nil, false, lost(err)
	}
	if ctx.Err() != nil { // send has put its own deadline in the place of this one
		return nil, false, lost(ctx.Err())
	}
	for {
		kind, payload, err := c.receive(max(uint64(4+id.Size*maxMember), 1+maxText))
		switch {
		case err != nil:
			return nil, in, lost(err)
		case kind == frame.Joined:
			in = true
		case kind == frame.Refused:
			return nil, true, decodeRefused(payload)
		case kind == frame.Table && in:
			if members, err = decodeTable(payload, id.Size); err != nil {
				return nil, true, fault(backend.ErrInit, "%v", err)
			}
			return members, true, nil
		default:
			return nil, true, fault(backend.ErrInternal, "the coordinator sent %q, want the table of the ranks", kind)
		}
	}
}

// ranks lists numbers, ranges of them in short.
func ranks(list []int) string {
	const most = 20
	var parts []string
	for i := 0; i < len(list); {
		if len(parts) == most {
			return fmt.Sprintf("%s and %d more", strings.Join(parts, ", "), len(list)-i)
		}
		k := i
		for k+1 < len(list) && list[k+1] == list[k]+1 {
			k++
		}
		switch {
		case k == i:
			parts = append(parts, fmt.Sprint(list[i]))
		case k == i+1:
			parts = append(parts, fmt.Sprint(list[i]), fmt.Sprint(list[k]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[k]))
		}
		i = k + 1
	}
	return strings.Join(parts, ", ")
}

// timedOut reports whether a deadline that this process set ended a read.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
