package meet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

const (
	// As many handshakes as the job has ranks may be under way at once, within these bounds: all ranks may
	// connect when the job starts. Each handshake takes a few kilobytes.
	leastPending = 256
	mostPending  = 1024
	// grace is how long a handshake may take while others wait. Between two ranks it takes about a
	// millisecond. A rank that is slower is dropped and tries again.
	grace = 50 * time.Millisecond
)

// ListenConfig configures a Listener.
type ListenConfig struct {
	Addrs    []netip.Addr // one socket each
	PortMin  uint16       // the first port that may be used; 0 for any free one
	PortMax  uint16       // the last, not below the first; 0 for PortMin
	Identity *Identity    // of this process
}

// A Listener accepts connections and returns those whose peer has proved to be a rank of the job: for the
// coordinator, ranks that join; for a rank, its peers. Its methods may be called concurrently.
//
// As many handshakes may be under way as the job has ranks, at least 256 and at most 1024. If another
// connection arrives, one is dropped that has had 50 ms: the oldest from the address with the most. So a
// peer that holds connections open without completing the handshake does not keep others out. A handshake
// takes HandshakeTimeout at most.
type Listener struct {
	id      *Identity
	sockets []*net.TCPListener
	queue   chan *Conn
	ctx     context.Context
	cancel  context.CancelFunc
	all     sync.WaitGroup

	mu      sync.Mutex
	most    int          // handshakes at once
	pending []*candidate // oldest first
	refused refusals
}

// A candidate is a connection whose handshake is under way.
type candidate struct {
	conn  net.Conn
	addr  netip.Addr
	since time.Time
}

// Listen opens the sockets and starts to accept connections.
func Listen(cfg ListenConfig) (*Listener, error) {
	if err := cfg.Identity.Check(); err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	l := &Listener{id: cfg.Identity, queue: make(chan *Conn),
		most: min(max(cfg.Identity.Size, leastPending), mostPending)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for _, a := range cfg.Addrs {
		s, err := bind(a, int(cfg.PortMin), int(cmp.Or(cfg.PortMax, cfg.PortMin)))
		if err != nil {
			l.Close()
			return nil, err
		}
		l.sockets = append(l.sockets, s)
	}
	for _, s := range l.sockets {
		l.all.Go(func() { l.serve(s) })
	}
	return l, nil
}

// bind binds a free port of a range. It starts at a random one, because the ranks of a node search at
// the same time.
func bind(a netip.Addr, first, last int) (*net.TCPListener, error) {
	n := last - first + 1
	var err error
	for i, from := 0, rand.IntN(n); i < n; i++ {
		port := uint16(first + (from+i)%n)
		var s *net.TCPListener
		if s, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, port))); err == nil {
			return s, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			break
		}
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && n == 1:
		err = fmt.Errorf("port %d is in use; choose another port, or wait until the process that uses it ends: %w", first, err)
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("ports %d to %d are all in use; give a wider range, with at least one port for each rank of the node: %w", first, last, err)
	}
	return nil, fmt.Errorf("listening at %s: %w", a, err)
}

// Addrs returns the addresses of the listener's sockets.
func (l *Listener) Addrs() []netip.AddrPort {
	addrs := make([]netip.AddrPort, len(l.sockets))
	for i, s := range l.sockets {
		a := s.Addr().(*net.TCPAddr).AddrPort()
		addrs[i] = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	}
	return addrs
}

// Accept returns the next connection of a rank. It fails when ctx ends, and when the listener is closed
// (backend.ErrClosed).
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-ctx.Done():
		return nil, backend.Harmless(context.Cause(ctx))
	case <-l.ctx.Done():
		return nil, &backend.Fault{Sentinel: backend.ErrClosed, Text: "the listener"}
	}
}

// Report returns one line with the number of refused connections for each reason and the first error of
// each, "" if no connection was refused or there is no listener. It may be called after Close.
func (l *Listener) Report() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused.report()
}

// Close closes the sockets, the handshakes under way, and the connections that Accept has not
// returned. Connections that Accept has returned stay open.
func (l *Listener) Close() error {
	l.cancel() // ends the handshakes
	for _, s := range l.sockets {
		s.Close()
	}
	l.all.Wait()
	return nil
}

// serve accepts from one socket, until Close closes it.
func (l *Listener) serve(socket *net.TCPListener) {
	for l.ctx.Err() == nil {
		conn, err := socket.AcceptTCP()
		if err == nil {
			l.begin(&candidate{conn: conn, addr: conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()})
		} else if !errors.Is(err, net.ErrClosed) {
			l.starve(err)
		}
	}
}

// starve handles an accept that failed for lack of descriptors: it drops a handshake, to free one.
func (l *Listener) starve(err error) {
	l.mu.Lock()
	l.refused.add(Descriptors, err)
	l.drop()
	l.mu.Unlock()
	rest(l.ctx, 10*time.Millisecond)
}

// begin starts a candidate's handshake as soon as there is room for it.
func (l *Listener) begin(s *candidate) {
	for !l.add(s) {
		rest(l.ctx, time.Millisecond)
		if l.ctx.Err() != nil {
			s.conn.Close()
			return
		}
	}
	l.all.Go(func() { l.handshake(s) })
}

// add adds a candidate to the list, and reports whether there was room. Another may be dropped for it.
func (l *Listener) add(s *candidate) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) >= l.most && !l.drop() {
		return false
	}
	s.since = time.Now()
	l.pending = append(l.pending, s)
	return true
}

// drop closes, of the candidates that have had their time, the oldest one from the address with the most
// of them, and reports whether there was one. The lock is held.
func (l *Listener) drop() bool {
	number := make(map[netip.Addr]int)
	most := 1
	for _, s := range l.pending {
		if time.Since(s.since) >= grace {
			number[s.addr]++
			most = max(most, number[s.addr])
		}
	}
	for i, s := range l.pending {
		if number[s.addr] == most {
			s.conn.Close()
			l.pending = slices.Delete(l.pending, i, i+1)
			return true
		}
	}
	return false
}

// remove takes a candidate off the list, and reports whether it was there. It is then not dropped any
// more.
func (l *Listener) remove(s *candidate) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.pending, s)
	if i >= 0 {
		l.pending = slices.Delete(l.pending, i, i+1)
	}
	return i >= 0
}

// handshake runs the handshake with a candidate. It passes it to Accept if it is a rank, and otherwise
// counts it.
func (l *Listener) handshake(s *candidate) {
	kept := false
	conn, err := serve(l.ctx, s.conn, l.id, func() bool {
		kept = l.remove(s)
		return kept
	})
	if err == nil {
		select {
		case l.queue <- conn:
		case <-l.ctx.Done():
			conn.Close()
		}
		return
	}
	dropped := !kept && !l.remove(s)
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok || l.ctx.Err() != nil {
		return // the listener has ended
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if dropped {
		refusal = &Refusal{Reason: Crowded, Remote: s.conn.RemoteAddr().String(), Text: fmt.Sprintf("%d handshakes were under way, "+
			"and this one was not complete after %v", l.most, time.Since(s.since).Round(time.Millisecond))}
	}
	l.refused.add(refusal.Reason, refusal)
}
