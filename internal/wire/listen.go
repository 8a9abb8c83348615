package wire

import (
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
	// As many handshakes as the job has ranks may be under way at once, within these bounds: all ranks
	// may connect when the job starts. Each handshake takes a few kilobytes.
	leastPending = 256
	mostPending  = 1024
	// grace is how long a handshake may take while others wait. Between two ranks it takes about a
	// millisecond. A rank that is slower is dropped and tries again.
	grace = 50 * time.Millisecond
	// starved is how long no descriptor may be free for a new connection before Accept returns an error.
	starved = 2 * time.Second
)

// ListenConfig configures a Listener.
type ListenConfig struct {
	Addrs    []netip.Addr // one socket each
	PortMin  int          // the first port that may be used; 0 for any free one
	PortMax  int          // the last; 0 for PortMin
	Pending  int          // handshakes at once; 0 for as many as the job has ranks, 256 to 1024
	Identity *Identity    // of this process
}

// A Listener accepts connections and returns those whose peer has proved to be a rank of the job. Its
// methods may be called concurrently.
//
// If Pending handshakes are under way and another connection arrives, one is dropped that has had
// 50 ms: the oldest from the address with the most. So a peer that holds connections open without
// completing the handshake does not keep others out. A handshake takes HandshakeTimeout at most.
type Listener struct {
	id      *Identity
	begun   *Identity // the same, after the rendezvous
	sockets []*net.TCPListener
	queues  [DialRequest + 1]chan *Conn
	failed  chan error // what stops new connections from being accepted
	slots   chan struct{}
	met     chan struct{} // closed when the rendezvous is over
	ctx     context.Context
	cancel  context.CancelFunc
	all     sync.WaitGroup

	once    sync.Once // closes met
	mu      sync.Mutex
	pending []*candidate // oldest first
	counts  counts
}

// A candidate is a connection whose handshake is under way.
type candidate struct {
	conn    net.Conn
	addr    netip.Addr
	since   time.Time
	dropped bool
}

// Listen opens the sockets and starts to accept connections.
func Listen(cfg ListenConfig) (*Listener, error) {
	if err := cfg.Identity.Check(); err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	first, last := cfg.PortMin, cfg.PortMax
	if last == 0 {
		last = first
	}
	if first < 0 || last < first || last > 65535 || first == 0 && last != 0 {
		return nil, fmt.Errorf("listening: ports %d to %d are not a valid range", first, last)
	}
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("listening: no address is given")
	}
	if cfg.Pending == 0 {
		cfg.Pending = min(max(cfg.Identity.Size, leastPending), mostPending)
	}
	l := &Listener{id: cfg.Identity, failed: make(chan error, 1), slots: make(chan struct{}, max(cfg.Pending, 1)), met: make(chan struct{})}
	begun := *cfg.Identity
	begun.Coordinator, l.begun = false, &begun
	for i := range l.queues {
		l.queues[i] = make(chan *Conn)
	}
	for _, a := range cfg.Addrs {
		s, err := bind(a, first, last)
		if err != nil {
			for _, s := range l.sockets {
				s.Close()
			}
			return nil, err
		}
		l.sockets = append(l.sockets, s)
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
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
		err = fmt.Errorf("port %d is in use by another process; choose another port, or wait until that process ends: %w", first, err)
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("ports %d to %d are all in use; give a wider range, with at least one port for each rank of the node: %w", first, last, err)
	case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE):
		err = fmt.Errorf("no file descriptor is left; raise the limit (ulimit -n): %w", err)
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

// Accept returns the next connection that a rank made for the given purpose. It fails when ctx ends,
// when the listener is closed (backend.ErrClosed), and while no file descriptor is free.
func (l *Listener) Accept(ctx context.Context, purpose Purpose) (*Conn, error) {
	if purpose < Rendezvous || purpose > DialRequest {
		return nil, fmt.Errorf("accepting a connection: there is no purpose %d", purpose)
	}
	select {
	case c := <-l.queues[purpose]:
		return c, nil
	case err := <-l.failed:
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.ctx.Done():
		return nil, &backend.Fault{Sentinel: backend.ErrClosed, Text: "the listener"}
	}
}

// Refused returns the number of refused connections for each reason, and the first error of each.
func (l *Listener) Refused() []Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Count
	for _, c := range l.counts {
		if c.Number > 0 {
			list = append(list, c)
		}
	}
	return list
}

// Report returns the same in one line, "" if no connection was refused. Both may be called after Close.
func (l *Listener) Report() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts.report()
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

// serve accepts from one socket.
func (l *Listener) serve(socket *net.TCPListener) {
	var since time.Time // since when no descriptor has been free
	for {
		conn, err := socket.AcceptTCP()
		if err != nil {
			if l.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			if since.IsZero() {
				since = time.Now()
			}
			if !l.starve(err, time.Since(since)) {
				return
			}
			continue
		}
		since = time.Time{}
		s := &candidate{conn: conn, addr: conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()}
		if !l.admit(s) {
			conn.Close()
			return
		}
		l.all.Go(func() { l.handshake(s) })
	}
}

// starve handles an accept that failed. It drops a handshake, to free a descriptor, and reports
// whether to go on.
func (l *Listener) starve(err error, lasted time.Duration) bool {
	l.mu.Lock()
	reason := Descriptors
	if errors.Is(err, syscall.ECONNABORTED) {
		reason = Silent
	}
	l.counts.add(reason, err)
	if reason == Descriptors {
		// accept fails without a descriptor even if no peer waits. So a handshake keeps its time.
		l.drop(grace)
	}
	l.mu.Unlock()
	if reason == Silent {
		return l.ctx.Err() == nil
	}
	if lasted > starved {
		select {
		case l.failed <- fmt.Errorf("no connection could be accepted for %v; raise the limit of file descriptors (ulimit -n): %w", starved, err):
		default: // the last error has not been returned yet
		}
	}
	pause := time.NewTimer(10 * time.Millisecond)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// admit waits for a slot for a candidate; another may be dropped for it. It reports whether the
// listener is still open.
func (l *Listener) admit(s *candidate) bool {
	for {
		select {
		case l.slots <- struct{}{}:
			s.since = time.Now()
			l.mu.Lock()
			l.pending = append(l.pending, s)
			l.mu.Unlock()
			return true
		default:
		}
		l.mu.Lock()
		wait := l.drop(grace)
		l.mu.Unlock()
		more := time.NewTimer(wait)
		select {
		case l.slots <- struct{}{}: // the wait was for this
			<-l.slots
		case <-more.C:
		case <-l.ctx.Done():
			more.Stop()
			return false
		}
		more.Stop()
	}
}

// drop considers the candidates that have had their time, and closes the oldest one from the address
// with the most of them. It returns how long to wait for a slot before the next is dropped. The lock
// is held.
func (l *Listener) drop(least time.Duration) time.Duration {
	number := make(map[netip.Addr]int)
	most, wait := 0, least
	for _, s := range l.pending {
		if s.dropped {
			continue
		}
		if age := time.Since(s.since); age >= least {
			number[s.addr]++
			most = max(most, number[s.addr])
		} else {
			wait = min(wait, least-age)
		}
	}
	for _, s := range l.pending {
		if !s.dropped && number[s.addr] == most && most > 0 {
			s.dropped = true
			s.conn.Close()
			return least // its slot comes free at once
		}
	}
	return max(wait, time.Millisecond)
}

// handshake runs the handshake with a candidate, and passes it to Accept if it is a rank.
func (l *Listener) handshake(s *candidate) {
	id := l.id
	select {
	case <-l.met:
		id = l.begun
	default:
	}
	conn, err := serve(l.ctx, s.conn, id, func() bool { return l.keep(s) })
	l.keep(s)
	l.mu.Lock()
	if err != nil && l.ctx.Err() == nil {
		refusal, ok := errors.AsType[*Refusal](err)
		if !ok {
			refusal = &Refusal{Reason: Silent, Remote: remote(s.conn), Err: err}
		}
		if s.dropped {
			refusal = &Refusal{Reason: Crowded, Remote: remote(s.conn),
				Text: fmt.Sprintf("%d handshakes were under way, and this one was not complete after %v", cap(l.slots), time.Since(s.since).Round(time.Millisecond))}
		}
		l.counts.add(refusal.Reason, refusal)
	}
	l.mu.Unlock()
	<-l.slots
	if err != nil {
		return
	}
	var met chan struct{}
	if conn.Purpose == Rendezvous {
		met = l.met
	}
	select {
	case l.queues[conn.Purpose] <- conn:
	case <-met:
		conn.Close()
	case <-l.ctx.Done():
		conn.Close()
	}
}

// keep protects a candidate from being dropped, and reports whether it has not been dropped already.
func (l *Listener) keep(s *candidate) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.pending, s); i >= 0 {
		l.pending = slices.Delete(l.pending, i, i+1)
	}
	return !s.dropped
}

// endJoin ends the rendezvous: ranks that come later are refused.
func (l *Listener) endJoin() { l.once.Do(func() { close(l.met) }) }
