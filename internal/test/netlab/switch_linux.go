package netlab

import (
	"os"
	"slices"
	"sync"
	"time"
)

// read takes what a host sends and passes it on.
func (n *Net) read(from int, h *host) {
	b := make([]byte, 1<<16)
	var p packet
	for {
		k, err := h.tun.Read(b)
		if err != nil {
			return // closed
		}
		if parse(b[:k], &p) {
			n.forward(from, b[:k], &p)
		}
	}
}

// forward passes one packet on. A packet that has nothing to wait for is written here, so that the
// order of a host's packets stays what it is.
func (n *Net) forward(from int, b []byte, p *packet) {
	now := time.Now()
	e := Event{Kind: Sent, At: now.Sub(n.made), From: from, To: n.hostOf(p), Ports: p.ports, Seq: p.seq, Flags: p.flags, Payload: p.end - p.data}
	n.mu.Lock()
	n.packets++
	e.Packet = n.packets
	switch {
	case p.dst == switchAddr && p.ports[1] == markPort:
		e.Kind, e.Text = Marked, string(b[p.data:p.end])
		n.note(e)
		f := n.on[e.Text]
		n.mu.Unlock()
		if f != nil {
			f()
		}
		return
	case e.To < 0 || e.To == from:
		n.mu.Unlock()
		return
	}
	n.note(e)
	wait, arrives := n.pairs[from][e.To].throw(len(b), now)
	if !arrives {
		e.Kind = Dropped
		n.note(e)
	}
	n.mu.Unlock()
	to := n.hosts[e.To]
	e.Kind = Delivered
	switch {
	case !arrives:
	case wait > 0:
		to.late.add(now.Add(wait), append([]byte(nil), b...), func() { n.arrive(e) })
	default:
		n.arrive(e)
		to.tun.Write(b)
	}
}

// arrive notes that a packet is about to be delivered.
func (n *Net) arrive(e Event) {
	n.mu.Lock()
	e.At = time.Since(n.made)
	n.note(e)
	n.mu.Unlock()
}

func (n *Net) note(e Event) {
	if n.tracing {
		n.trace = append(n.trace, e)
	}
}

// hostOf returns the host that a packet is for, below 0 if there is none.
func (n *Net) hostOf(p *packet) int {
	i := int(p.dst.As4()[3]) - 1
	if i >= len(n.hosts) || i < 0 || p.dst != n.hosts[i].addr {
		return -1
	}
	return i
}

// later delivers packets to a host when their time has come.
type later struct {
	tun  *os.File
	news chan struct{}

	mu    sync.Mutex
	queue []arrival // the earliest first, and of those that come at the same time the one sent first
}

type arrival struct {
	at   time.Time
	b    []byte
	tell func()
}

func (l *later) add(at time.Time, b []byte, tell func()) {
	l.mu.Lock()
	i, _ := slices.BinarySearchFunc(l.queue, at, func(a arrival, at time.Time) int {
		if a.at.After(at) {
			return 1
		}
		return -1
	})
	l.queue = slices.Insert(l.queue, i, arrival{at, b, tell})
	first := i == 0
	l.mu.Unlock()
	if first {
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
}

// run delivers until over is closed.
func (l *later) run(over chan struct{}) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		l.mu.Lock()
		wait := time.Hour
		var due []arrival
		for now := time.Now(); len(l.queue) > 0; {
			if wait = l.queue[0].at.Sub(now); wait > 0 {
				break
			}
			due, l.queue = append(due, l.queue[0]), slices.Delete(l.queue, 0, 1)
			wait = time.Hour
		}
		l.mu.Unlock()
		for _, a := range due {
			a.tell()
			l.tun.Write(a.b)
		}
		if len(due) > 0 {
			continue
		}
		t.Reset(wait)
		select {
		case <-over:
			return
		case <-l.news:
		case <-t.C:
		}
	}
}
