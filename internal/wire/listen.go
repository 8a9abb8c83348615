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
	// As many connections as the job has ranks may be at their handshake at once, within these bounds: all may come
	// when it starts. Each takes some kilobytes.
	leastPending = 256
	mostPending  = 1024
	// grace is how long a handshake is left alone when others wait: between two ranks it takes a
	// millisecond. Who is as slow as that and no stranger will try again.
	grace = 50 * time.Millisecond
	// starved is how long there may be no descriptor for a new connection before Accept says so.
	starved = 2 * time.Second
)

// ListenConfig says where a Listener listens.
type ListenConfig struct {
	Addrs    []netip.Addr // one socket each
	PortMin  int          // the first port that may be used; 0 for any free one
	PortMax  int          // the last; 0 for PortMin
	Pending  int          // how many strangers at once; 0 for as many as the job has ranks, 256 to 1024
	Identity *Identity    // of this process
}

// A Listener accepts connections and hands out those that have proved to be a rank's. Its methods
// may be called by several goroutines.
//
// While there are Pending strangers at their handshake and another comes, the oldest of them is
// dropped, of the address that has most of them, once it has had 50 ms: who holds connections open
// without a word keeps nobody else out. All have HandshakeTimeout at most.
type Listener struct {
	id      *Identity
	begun   *Identity // the same, of a job whose ranks have met
	sockets []*net.TCPListener
	queues  [Knock + 1]chan *Conn
	failed  chan error // what stops new connections from being accepted
	slots   chan struct{}
	met     chan struct{} // closed when the ranks have met
	ctx     context.Context
	cancel  context.CancelFunc
	all     sync.WaitGroup

	once    sync.Once // closes met
	mu      sync.Mutex
	pending []*stranger // oldest first
	counts  counts
}

// A stranger is a connection at its handshake.
type stranger struct {
	conn    net.Conn
	addr    netip.Addr
	since   time.Time
	dropped bool
}

// Listen starts to listen.
func Listen(cfg ListenConfig) (*Listener, error) {
	if err := cfg.Identity.Check(); err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	first, last := cfg.PortMin, cfg.PortMax
	if last == 0 {
		last = first
	}
	if first < 0 || last < first || last > 65535 || first == 0 && last != 0 {
		return nil, fmt.Errorf("listening: ports %d to %d are no range of ports", first, last)
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

// bind takes a port of a range, from a random one on, so that the ranks of a node do not all ask for
// the same.
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
		err = fmt.Errorf("another process has port %d: take another, or wait until it ends: %w", first, err)
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("all ports from %d to %d are taken: give a wider range, at least one port for each rank of the node: %w", first, last, err)
	case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE):
		err = fmt.Errorf("no descriptor is left; raise the limit (ulimit -n): %w", err)
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

// Accept returns the next connection of a purpose. It ends with ctx, with the listener
// (backend.ErrClosed), and where there is no descriptor for new connections.
func (l *Listener) Accept(ctx context.Context, purpose Purpose) (*Conn, error) {
	if purpose < Meeting || purpose > Knock {
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

// Refused returns what was refused so far, for each reason that there was.
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

// Report returns the same in one line, "" if nothing was refused. Both can be asked for after Close.
func (l *Listener) Report() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts.report()
}

// Close ends the listener, its handshakes, and the connections that nobody has taken. Those that
// Accept has returned stay.
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
	var since time.Time // since when there has been no descriptor
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
		s := &stranger{conn: conn, addr: conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()}
		if !l.admit(s) {
			conn.Close()
			return
		}
		l.all.Go(func() { l.meet(s) })
	}
}

// starve deals with an accept that failed. It gives a descriptor back, if a stranger has one, and
// reports whether to go on.
func (l *Listener) starve(err error, lasted time.Duration) bool {
	l.mu.Lock()
	reason := Descriptors
	if errors.Is(err, syscall.ECONNABORTED) {
		reason = Silent
	}
	l.counts.add(reason, err)
	if reason == Descriptors {
		// Accept fails without a descriptor whether anybody waits or not: who has the last one is
		// left its time.
		l.drop(grace)
	}
	l.mu.Unlock()
	if reason == Silent {
		return l.ctx.Err() == nil
	}
	if lasted > starved {
		select {
		case l.failed <- fmt.Errorf("no connection could be accepted for %v; is the limit of descriptors too low (ulimit -n)? %w", starved, err):
		default: // nobody has asked since the last one
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

// admit gives a stranger a slot, which may be another's. It reports whether the listener goes on.
func (l *Listener) admit(s *stranger) bool {
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

// drop closes the oldest stranger of the address that has most of those who have had their time, and
// returns how long to wait for a slot before the next is dropped. Its caller holds the lock.
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

// meet does the handshake with a stranger, and hands it out if it is a rank.
func (l *Listener) meet(s *stranger) {
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
				Text: fmt.Sprintf("%d others were at their handshake, and it had not ended its own in %v", cap(l.slots), time.Since(s.since).Round(time.Millisecond))}
		}
		l.counts.add(refusal.Reason, refusal)
	}
	l.mu.Unlock()
	<-l.slots
	if err != nil {
		return
	}
	var met chan struct{}
	if conn.Purpose == Meeting {
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

// keep has a stranger not be dropped any more, and reports whether it has not been already.
func (l *Listener) keep(s *stranger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.pending, s); i >= 0 {
		l.pending = slices.Delete(l.pending, i, i+1)
	}
	return !s.dropped
}

// endMeeting turns away who comes to meet from now on.
func (l *Listener) endMeeting() { l.once.Do(func() { close(l.met) }) }
