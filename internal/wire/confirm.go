package wire

import (
	"context"
	"errors"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// After the rendezvous the ranks connect to each other. If one ends meanwhile, only the ranks that wait
// for its connection notice. So each rank reports to the coordinator when its connections are made, and
// waits until all have reported. Then all ranks start, or all get the same error.

// blame is how long the coordinator waits, when a rank reports that it cannot connect, for the end of
// the rank that caused it.
const blame = 200 * time.Millisecond

// Confirm calls connect to make this rank's connections to the others, and returns when the coordinator
// reports that all ranks have made theirs. c is the connection that Join returned. If a rank ends, or
// cannot connect, connect's context ends, and every rank gets the same error.
func (c *Conn) Confirm(ctx context.Context, connect func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		err := c.confirmed()
		if err != nil {
			cancel()
		}
		answer <- err
	}()
	stop := func() error { // the reader; its answer counts, not that it was stopped
		c.SetReadDeadline(time.Unix(1, 0))
		err := <-answer
		c.SetReadDeadline(time.Time{})
		if err != nil && timedOut(err) {
			return nil
		}
		return err
	}
	failed := func(err error) error {
		if f, ok := errors.AsType[*backend.Fault](err); ok {
			return f
		}
		return fault(backend.ErrPeerLost, "lost the coordinator, %s at %s, before all ranks were connected: %v", who(c.Rank), remote(c), err)
	}
	if err := connect(ctx); err != nil {
		if ctx.Err() != nil {
			if said := stop(); said != nil {
				return failed(said)
			}
			return err
		}
		if _, ok := errors.AsType[*backend.Fault](err); !ok {
			err = fault(backend.ErrInit, "%v", err)
		}
		_ = c.send(frame.Refused, appendRefused(nil, err), time.Now().Add(tellTimeout))
		var said error // the coordinator's error, if it answers, names the cause
		select {
		case said = <-answer:
		case <-time.After(blame + tellTimeout):
			said = stop()
		case <-ctx.Done(): // an error from the coordinator ends it too
			said = stop()
		}
		if f, ok := errors.AsType[*backend.Fault](said); ok {
			return f
		}
		return err
	}
	err := c.send(frame.Connected, nil, time.Now().Add(tableTimeout)) // long, for a rank that is not scheduled for a second
	if err == nil {
		select {
		case err = <-answer:
		case <-ctx.Done():
			if err = stop(); err == nil {
				err = ended(ctx, "waiting for the other ranks to connect to each other")
			}
		}
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// confirmed returns nil when the coordinator reports that all ranks are connected.
func (c *Conn) confirmed() error {
	kind, payload, err := c.receive(1 + maxText)
	switch {
	case err != nil:
		return err
	case kind == frame.Refused:
		return decodeRefused(payload)
	case kind != frame.Connected:
		return fault(backend.ErrInternal, "the coordinator sent %q before all ranks were connected", kind)
	}
	return nil
}

// Oversee is the coordinator's part in Confirm. members and conns are the results of Coordinate. connect
// makes the coordinator's own connections if it is a rank; it is nil for the Launcher.
func Oversee(ctx context.Context, members []Member, conns []*Conn, connect func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type news struct {
		rank int
		gone bool
		err  error
	}
	reports, waiting, self := make(chan news, len(conns)), 0, 0
	for r, c := range conns {
		if c == nil {
			self = r
			continue
		}
		waiting++
		go func() {
			n := news{rank: r}
			switch kind, payload, err := c.receive(1 + maxText); {
			case err != nil:
				n.gone, n.err = true, err
			case kind == frame.Refused:
				n.err = decodeRefused(payload)
			case kind != frame.Connected:
				n.err = fault(backend.ErrInternal, "%v sent %q before all ranks were connected", &members[r], kind)
			}
			reports <- n
		}()
	}
	if connect != nil {
		waiting++
		go func() { reports <- news{rank: self, err: connect(ctx)} }()
	}
	stopped := false
	stop := func() { // ends what still waits
		if !stopped {
			stopped = true
			cancel()
			for _, c := range conns {
				if c != nil {
					c.SetReadDeadline(time.Unix(1, 0))
				}
			}
		}
	}
	defer func() {
		for ; waiting > 0; waiting-- {
			<-reports
		}
		for _, c := range conns {
			if c != nil {
				c.SetReadDeadline(time.Time{})
			}
		}
	}()
	defer stop()

	var first error // why the job fails to start
	var patience <-chan time.Time
	for waiting > 0 {
		select {
		case n := <-reports:
			waiting--
			switch {
			case n.gone:
				return failAll(conns, fault(backend.ErrPeerLost, "%v ended before all ranks of the job were connected: %v",
					&members[n.rank], n.err), stop)
			case n.err != nil && first == nil:
				first, patience = blamed(&members[n.rank], n.err), time.After(blame)
			}
			continue
		case <-patience:
		case <-ctx.Done():
			if first == nil {
				first = ended(ctx, "waiting for the ranks to connect to each other")
			}
		}
		return failAll(conns, first, stop)
	}
	if first != nil {
		return failAll(conns, first, stop)
	}
	for _, c := range conns {
		if c != nil {
			if err := c.send(frame.Connected, nil, time.Now().Add(tableTimeout)); err != nil {
				c.Close() // ends its wait; if it is gone, its peers find that out
			}
		}
	}
	return nil
}

// Serve starts the Launcher's part in a rendezvous at l: Coordinate and Oversee. Errors go to the ranks.
// end is called at the end of the job: it ends what is still under way, and closes the connections and
// l.
func Serve(l *Listener) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	met := make(chan []*Conn, 1)
	go func() {
		members, conns, err := Coordinate(ctx, l, nil)
		if err == nil {
			_ = Oversee(ctx, members, conns, nil)
		}
		met <- conns
	}()
	return func() {
		cancel()
		for _, c := range <-met {
			if c != nil {
				c.Close()
			}
		}
		l.Close()
	}
}

// failAll sends all ranks the error, ends the wait, and returns the error. The ranks receive it before
// the coordinator, if it is a rank, closes its connections to them.
func failAll(conns []*Conn, err error, stop func()) error {
	defer stop()
	payload := appendRefused(nil, err)
	for _, c := range conns {
		if c != nil {
			_ = c.send(frame.Refused, payload, time.Now().Add(tellTimeout))
		}
	}
	return err
}

// blamed returns the error, for all ranks, of a rank that could not connect.
func blamed(m *Member, err error) error {
	if f, ok := errors.AsType[*backend.Fault](err); ok {
		return fault(f.Sentinel, "%v: %s", m, f.Text)
	}
	return fault(backend.ErrInit, "%v: %v", m, err)
}
