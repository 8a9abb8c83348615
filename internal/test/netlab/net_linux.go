package netlab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Config describes a network. Hosts must be set.
type Config struct {
	Hosts int    // at least 1
	Seed  uint64 // of what happens to packets by chance
}

// A Net is a network of hosts, numbered from 0. Its methods may be called concurrently.
type Net struct {
	hosts []*host
	made  time.Time

	mu      sync.Mutex
	pairs   [][]pair // from, to
	dice    *rand.Rand
	packets int
	tracing bool
	trace   Trace
	on      map[string]func()

	wires sync.WaitGroup
	over  chan struct{}
	once  sync.Once
}

// host is a namespace: the thread that is in it, and its device.
type host struct {
	addr netip.Addr
	tun  *os.File
	todo chan func()
	quit chan struct{}
	gone chan struct{}
	late *later
}

// The addresses: host i has 10.97.0.1 + i, and what is sent to the switch itself are marks.
const maxHosts = 200

func hostAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 97, 0, byte(1 + i)}) }

var (
	switchAddr = netip.AddrFrom4([4]byte{10, 97, 0, 254})
	netMask    = []byte{255, 255, 255, 0}
)

const markPort = 9 // discard

// ErrUnavailable is wrapped by New's error if this process cannot make networks.
var ErrUnavailable = errors.New("networks cannot be made here")

// New makes a network whose paths deliver every packet at once.
func New(cfg Config) (*Net, error) {
	if cfg.Hosts < 1 || cfg.Hosts > maxHosts {
		return nil, fmt.Errorf("netlab: %d hosts, want 1 to %d", cfg.Hosts, maxHosts)
	}
	n := &Net{made: time.Now(), over: make(chan struct{}), dice: rand.New(rand.NewPCG(cfg.Seed, 1))}
	n.pairs = make([][]pair, cfg.Hosts)
	for i := range n.pairs {
		n.pairs[i] = make([]pair, cfg.Hosts)
		for k := range n.pairs[i] {
			n.pairs[i][k].dice = rand.New(rand.NewPCG(cfg.Seed, uint64(i<<16|k)))
		}
	}
	for i := range cfg.Hosts {
		h, err := newHost(hostAddr(i))
		if err != nil {
			n.Close()
			return nil, fmt.Errorf("netlab: host %d: %w", i, err)
		}
		h.late = &later{tun: h.tun, news: make(chan struct{}, 1)}
		n.hosts = append(n.hosts, h)
	}
	for i, h := range n.hosts {
		n.wires.Go(func() { n.read(i, h) })
		n.wires.Go(func() { h.late.run(n.over) })
	}
	return n, nil
}

// newHost starts a thread in a new namespace. The thread is never given back: it ends with
// the goroutine, and takes with it what was started there.
func newHost(addr netip.Addr) (*host, error) {
	h := &host{addr: addr, todo: make(chan func()), quit: make(chan struct{}), gone: make(chan struct{})}
	ready := make(chan error)
	inThread(func() {
		defer close(h.gone)
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err != nil {
			err = fmt.Errorf("%w: a namespace: %w", ErrUnavailable, err)
		} else {
			h.tun, err = device(addr)
		}
		ready <- err
		if err != nil {
			return
		}
		for {
			select {
			case f := <-h.todo:
				f()
			case <-h.quit:
				return
			}
		}
	})
	if err := <-ready; err != nil {
		<-h.gone
		return nil, err
	}
	return h, nil
}

// inThread runs f in a thread that ends with it. That is not the main thread, which Go parks when its
// goroutine ends: its children would not get the signal of its death.
func inThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		moved := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(moved)
			f()
		}()
		<-moved // until then this goroutine keeps the main thread
		runtime.UnlockOSThread()
	}()
}

// device makes the interface of this thread's namespace, and returns its other end.
func device(addr netip.Addr) (tun *os.File, err error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: /dev/net/tun: %w", ErrUnavailable, err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	req, err := unix.NewIfreq("wire")
	if err != nil {
		return nil, err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return nil, fmt.Errorf("%w: a TUN device: %w", ErrUnavailable, err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	// IPv6 would talk by itself. Where this cannot be written there are some packets to drop.
	os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0)
	a := addr.As4()
	for _, step := range []struct {
		what string
		name string
		req  uint
		set  func(*unix.Ifreq) error
	}{
		{"loopback up", "lo", unix.SIOCSIFFLAGS, flags},
		{"queue", "wire", unix.SIOCSIFTXQLEN, func(r *unix.Ifreq) error { r.SetUint32(10000); return nil }},
		{"address", "wire", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(a[:]) }},
		{"mask", "wire", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(netMask) }},
		{"up", "wire", unix.SIOCSIFFLAGS, flags},
	} {
		r, err := unix.NewIfreq(step.name)
		if err != nil {
			return nil, err
		}
		if err := step.set(r); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		// The length of the queue is not for the root of a user namespace to set: then the device
		// drops packets sooner, which is loss like another.
		if err := unix.IoctlIfreq(s, step.req, r); err != nil && (step.req != unix.SIOCSIFTXQLEN || err != unix.EPERM) {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return os.NewFile(uintptr(fd), "tun"), nil
}

func flags(r *unix.Ifreq) error {
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return nil
}

// Addr returns the address of a host.
func (n *Net) Addr(host int) netip.Addr { return n.hosts[host].addr }

// Do runs f on a host. Sockets that f makes and processes that it starts stay on the host, whichever
// goroutine uses them; goroutines that f starts do not. f must return: it must not end the test.
func (n *Net) Do(host int, f func() error) error {
	done := make(chan error, 1)
	select {
	case n.hosts[host].todo <- func() { done <- f() }:
		return <-done
	case <-n.over:
		return errors.New("netlab: the network is closed")
	}
}

// Start starts a process on a host. It is killed when the network is closed or this process ends in any
// way.
func (n *Net) Start(host int, cmd *exec.Cmd) error {
	return n.Do(host, func() error {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // of this thread, which is the host's
		return cmd.Start()
	})
}

// Set sets the path from one host to another, from the next packet on. A negative number stands for all
// hosts.
func (n *Net) Set(from, to int, path Path) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.pairs {
		for k := range n.pairs[i] {
			if (from < 0 || from == i) && (to < 0 || to == k) {
				n.pairs[i][k].path = path
			}
		}
	}
}

// Isolate cuts a host off from all others, or reconnects it.
func (n *Net) Isolate(host int, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range n.pairs {
		n.pairs[host][k].path.Cut = cut
		n.pairs[k][host].path.Cut = cut
	}
}

// Count returns the counts of packets from one host to another.
func (n *Net) Count(from, to int) Count {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pairs[from][to].count
}

// Record begins a new trace, and discards the one before.
func (n *Net) Record() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trace, n.tracing = nil, true
}

// Trace ends the trace and returns it.
func (n *Net) Trace() Trace {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.trace
	n.trace, n.tracing = nil, false
	return t
}

// On makes each mark with this text call f, before any later packet of the mark's host is delivered. A nil
// f ends that.
func (n *Net) On(text string, f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.on == nil {
		n.on = map[string]func(){}
	}
	n.on[text] = f
}

// Marker returns a function with which a program on a host makes marks in the network's trace, in order
// with the packets that it sends.
func Marker() (mark func(text string) error, end func() error, err error) {
	c, err := net.Dial("udp4", netip.AddrPortFrom(switchAddr, markPort).String())
	if err != nil {
		return nil, nil, err
	}
	return func(text string) error {
		_, err := c.Write([]byte(text))
		return err
	}, c.Close, nil
}

// Close ends the network and the processes on its hosts.
func (n *Net) Close() error {
	n.once.Do(func() {
		close(n.over)
		for _, h := range n.hosts {
			h.tun.Close()
		}
		n.wires.Wait()
		for _, h := range n.hosts {
			close(h.quit)
			<-h.gone
		}
	})
	return nil
}
