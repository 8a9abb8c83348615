//go:build cgo && linux

package mpi

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/gate"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// comm is one communicator of this rank.
type comm struct {
	p          *process
	data, ctl  libmpi.Comm
	rank, size int
	world      []int // each rank's rank in the world
	isWorld    bool

	// gate is shut once the communicator is closed. A goroutine inside may use the library's handles. Its tally is the
	// balance: the messages that this rank has sent on data and ctl, minus those that it has received.
	gate   gate.Tallied
	broken atomic.Pointer[backend.Fault] // why operations end

	reading  sync.Mutex            // held while a notice is received
	arriving [controlTags]arriving // by tag, from that of notices on

	queues [2]queue // guarded receives on data and on ctl
	taken  taken

	// Of the blocking collective:
	call   libmpi.Coll
	copied []byte // memory of its copy of the input of a call in place
	user   userCall
	late   sync.Mutex // held until it returns, also if it was abandoned

	transactions transactions

	// Of what happens after Close:
	calls      atomic.Uint32 // the library's collectives that this rank has begun, on data and ctl
	miscounts  atomic.Bool   // a call in the library has failed, so the balance is not known
	retirement retirement
}

func (c *comm) Rank() int          { return c.rank }
func (c *comm) Size() int          { return c.size }
func (c *comm) Caps() backend.Caps { return c.p.caps }

func (c *comm) WorldRank(rank int) int { return c.world[rank] }
func (c *comm) NodeOf(rank int) int    { return c.p.job.nodes[c.world[rank]] }
func (c *comm) HostOf(rank int) string { return c.p.job.hosts[c.NodeOf(rank)] }

// Diagnostics implements backend.Comm.
func (c *comm) Diagnostics() []string {
	p := c.p
	lines := []string{
		fmt.Sprintf("library: %s (%s)", p.lib.Name(), p.lib.Path),
		fmt.Sprintf("ABI: %v, MPI %s, thread level %v", p.lib.ABI, p.lib.Version, p.lib.level),
		"accepts GPU memory: " + p.caps.DeviceMemory + " (" + p.device.why + ")",
	}
	for _, s := range p.lib.settings {
		lines = append(lines, s.String())
	}
	if p.lib.unprofiled {
		lines = append(lines, "Profiling sets nothing: cohort knows no statistics of this library; tools that wrap MPI need no setting")
	}
	return lines
}

// on returns the MPI communicator that a tag belongs to, and its tag there.
func (c *comm) on(tag int) (libmpi.Comm, int) {
	if tag >= 0 || tag == backend.AnyTag {
		return c.data, tag
	}
	return c.ctl, c.p.tags.of(tag)
}

// usable returns the error of new operations if the communicator is closed or broken, or if a rank has failed, which
// is about to break it.
func (c *comm) usable() error {
	if c.gate.IsShut() {
		return backend.CommClosed
	}
	if f := c.broken.Load(); f != nil {
		return &backend.Broken{Cause: f}
	}
	if f := c.p.failed.Load(); f != nil {
		return &backend.Broken{Cause: f.why}
	}
	return nil
}

// enter begins a call that uses the library's handles of the communicator, which stay valid until
// leave. It returns an error if the communicator is closed or broken.
func (c *comm) enter() error {
	if c.gate.Enter() {
		if c.broken.Load() == nil {
			return nil
		}
		c.leave()
	}
	return c.usable()
}

func (c *comm) leave() { c.gate.Leave() }

// reenter is enter for calls that a broken communicator allows. It returns false if the
// communicator is closed, or a rank has failed.
func (c *comm) reenter() bool { return c.p.failed.Load() == nil && c.gate.Enter() }

// Derive makes a communicator of members, which all make it at the same time: the library's call
// waits for them.
func (c *comm) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	c.p.engine.tend()
	world := make([]int, len(members))
	for i, m := range members {
		world[i] = c.world[m]
	}
	d := &comm{p: c.p, world: world, rank: slices.Index(members, c.rank), size: len(members)}
	begun := time.Now()
	late := func(made bool, err error) {
		if made && err == nil { // the other members have it
			d.begin()
			d.Break(d.gaveUp(b.Err(begun)))
			_ = d.Close()
		}
	}
	if _, err := c.together(b, members, uint64(id), func() error { return c.create(d, id) }, late); err != nil {
		return nil, err
	}
	d.begin()
	if err := d.usable(); err != nil { // the world was closed meanwhile
		return nil, err
	}
	return d, nil
}

// Settled implements backend.Comm: the library keeps nothing for a communicator before all members make it.
func (c *comm) Settled(uint32) {}

// create makes the library's communicators on p.parent: in Open MPI, messages with the tag of MPI_Comm_create_group and
// receives of any tag on the communicator that it is called on would take its own messages, and it theirs.
func (c *comm) create(d *comm, id uint32) error {
	ranks := make([]int32, d.size)
	for i, r := range d.world {
		ranks[i] = int32(r)
	}
	tag := makingTag(id, c.p.lib.maxTag)
	var code libmpi.Code
	if d.data, code = c.p.parent.Create(ranks, tag); code != 0 {
		return c.unmade(code)
	}
	if d.ctl, code = c.p.parent.Create(ranks, tag+1); code == 0 {
		return nil
	}
	if code != libmpi.Ended {
		d.data.Free()
	}
	return c.unmade(code)
}

// makingTag returns the first of the two tags for making the communicator with an id. Several goroutines may
// make communicators of the same ranks at once, so ids share tags only where the library has too few of them.
func makingTag(id uint32, maxTag int) int { return int(id) % (maxTag / 2) * 2 }

func (c *comm) begin() {
	c.queues[0].on, c.queues[1].on = c.data, c.ctl
	c.transactions = newTransactions(c.rank, c.p.job.polled, func(to int, m []byte) bool {
		return c.p.engine.tell(c, m, to, c.p.tags.commit())
	})
	c.p.engine.add(c)
	if f := c.p.failed.Load(); f != nil {
		c.breaks(f.why)
	}
}

// UnderWay implements backend.Comm.
func (c *comm) UnderWay(f func(r *backend.Request, moves bool)) {
	for i := range c.queues {
		q := &c.queues[i]
		q.mu.Lock()
		for _, o := range q.ops {
			f(o.req, false)
		}
		q.mu.Unlock()
	}
	e := &c.p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.ops {
		if o.c == c && o.req != nil && o.coll == nil && o.fate == awaited { // drop has ended the others
			f(o.req, !o.receives)
		}
	}
}
