package wire

import (
	"context"
	"errors"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// After the table the ranks connect to each other, and one that ends meanwhile is missed by those alone
// that wait for its connection. So that all of them join, or all get the same error, each tells the
// coordinator when it has its connections, and waits to hear that all have.

// blame is how long the coordinator waits, when a rank says that it cannot connect, for the end of the
// rank that is to blame.
const blame = 200 * time.Millisecond

// Confirm has connect make a rank's connections to the others, and returns when all ranks have made
// theirs, which the coordinator says. c is the connection to it that Join returned. If a rank ends, or
// cannot connect, connect's context ends, and every rank gets the same error.
func (c *Conn) Confirm(ctx context.Context, connect func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := make(chan error, 1)
	go func() {
		err := c.confirmed()
		if err != nil {
			cancel()
		}
		heard <- err
	}()
	stop := func() error { // the reader; what it has heard counts, not that it was stopped
		c.SetReadDeadline(time.Unix(1, 0))
		err := <-heard
		c.SetReadDeadline(time.Time{})
		if err != nil && timedOut(err) {
			return nil
		}
		return err
	}
	told := func(err error) error {
		if f, ok := errors.AsType[*backend.Fault](err); ok {
			return f
		}
		return fault(backend.ErrPeerLost, "the coordinator, %s at %s, before all ranks were connected: %v", who(c.Rank), remote(c), err)
	}
	if err := connect(ctx); err != nil {
		if ctx.Err() != nil {
			if said := stop(); said != nil {
				return told(said)
			}
			return err
		}
		if _, ok := errors.AsType[*backend.Fault](err); !ok {
			err = fault(backend.ErrInit, "%v", err)
		}
		_ = c.send(refused, appendRefused(nil, err), time.Now().Add(tellTimeout))
		var said error // the coordinator knows better, if it answers
		select {
		case said = <-heard:
		case <-time.After(blame + tellTimeout):
			said = stop()
		case <-ctx.Done(): // which what was heard ends too
			said = stop()
		}
		if f, ok := errors.AsType[*backend.Fault](said); ok {
			return f
		}
		return err
	}
	err := c.send(connected, nil, time.Now().Add(tableTimeout)) // not to be missed by who gets no turn for a second
	if err == nil {
		select {
		case err = <-heard:
		case <-ctx.Done():
			if err = stop(); err == nil {
				err = ended(ctx, "waiting for the other ranks to connect to each other")
			}
		}
	}
	if err != nil {
		return told(err)
	}
	return nil
}

// confirmed returns nil when the coordinator says that all ranks are connected.
func (c *Conn) confirmed() error {
	kind, payload, err := c.receive(1 + maxText)
	switch {
	case err != nil:
		return err
	case kind == refused:
		return decodeRefused(payload)
	case kind != connected:
		return fault(backend.ErrInternal, "the coordinator sends %q before all ranks are connected", kind)
	}
	return nil
}

// Oversee is the coordinator's part in Confirm, with what Coordinate returned. connect makes its own
// connections, if it is a rank; nil for the Launcher.
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
			case kind == refused:
				n.err = decodeRefused(payload)
			case kind != connected:
				n.err = fault(backend.ErrInternal, "%v sends %q before all ranks are connected", &members[r], kind)
			}
			reports <- n
		}()
	}
	if connect != nil {
		waiting++
		go func() { reports <- news{rank: self, err: connect(ctx)} }()
	}
	stopped := false
	stop := func() { // what still waits
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

	var first error // why there will be no job
	var patience <-chan time.Time
	for waiting > 0 {
		select {
		case n := <-reports:
			waiting--
			switch {
			case n.gone:
				return tellAll(conns, fault(backend.ErrPeerLost, "%v came and went before all ranks of the job were connected: %v",
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
		return tellAll(conns, first, stop)
	}
	if first != nil {
		return tellAll(conns, first, stop)
	}
	for _, c := range conns {
		if c != nil {
			if err := c.send(connected, nil, time.Now().Add(tableTimeout)); err != nil {
				c.Close() // so that it does not wait for that; one that is gone its peers find gone
			}
		}
	}
	return nil
}

// Serve begins the Launcher's part in a meeting at l: Coordinate, and Oversee. What goes wrong the ranks are
// told. end, at the end of the job, ends what is still under way, and closes the connections and l.
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

// tellAll tells all ranks why there will be no job, ends the wait, and returns why. The ranks hear it before the
// coordinator, if it is one of them, closes its connections to them because of it.
func tellAll(conns []*Conn, err error, stop func()) error {
	defer stop()
	payload := appendRefused(nil, err)
	for _, c := range conns {
		if c != nil {
			_ = c.send(refused, payload, time.Now().Add(tellTimeout))
		}
	}
	return err
}

// blamed is the error for all ranks of one that could not connect.
func blamed(m *Member, err error) error {
	if f, ok := errors.AsType[*backend.Fault](err); ok {
		return fault(f.Sentinel, "%v: %s", m, f.Text)
	}
	return fault(backend.ErrInit, "%v: %v", m, err)
}
