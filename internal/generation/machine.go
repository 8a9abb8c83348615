package generation

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	quickEnd  = 200 * time.Millisecond // a process that ends sooner after its first place ends at once
	pauseUnit = 100 * time.Millisecond // before the third process in a row that ends at once is started
	pauseMost = 10 * time.Second
	doubt     = 300 * time.Millisecond // for the end of a process that others count as lost to be reported, before it is killed
)

// Config describes a job.
type Config struct {
	Now      func() time.Time
	Job      string // its name
	Size     int    // of the first generation
	Min, Max int    // sizes that the job may have
	Restarts int    // how many processes are started in place of others
	Host     Host
}

// Host carries out what a [Machine] decides. Its methods must not call the machine.
type Host interface {
	Start(id, rank int)     // starts a process for a rank
	Kill(id int)            // ends a process that has not asked, and that the others count as lost
	Tell(id int, m Message) // sends a message to a process
	Fail(text string)       // ends the job, which cannot go on
}

// Fate says what follows from the end of a process.
type Fate int

const (
	Decides  Fate = iota // its end is one of a job without generations
	Replaced             // another process is started for its rank
	Shrinks              // the job goes on without it
	Ignored              // it was out
)

// Machine is the state of a job. One goroutine calls its methods.
type Machine struct {
	Config
	Generation int // of the present world, -1 before the first

	processes map[int]*process // those that have not ended, by id
	unasked   int              // how many of them are starting
	next      int              // the id of the next process
	members   []int            // ids of the present world's ranks
	want      int              // the size of the next world, if nothing is lost for good
	resizing  bool             // the members have been told that want has changed
	seats     map[int]*seat    // by rank
	doubted   time.Time        // when all others had asked, and counted the rest as lost; zero: not so
	over      string           // why no further world is formed
}

type state uint8

const (
	starting state = iota
	asking
	member
	out
)

type process struct {
	id, rank   int // in its generation, or the one that it is started for
	state      state
	generation int // -1: none yet
	joined     bool
	began      time.Time    // when it got its first place
	lost       map[int]bool // ids that it counts as lost
	out        Message      // why it is out, if it was dismissed
}

// seat is the history of a rank's processes.
type seat struct {
	quick int       // processes in a row that ended at once
	due   time.Time // when the next one is started; zero: no start is due
}

// New returns the machine of a job. Its owner starts the first processes, whose ids are their ranks.
func New(c Config) *Machine {
	m := &Machine{Config: c, Generation: -1, processes: make(map[int]*process), seats: make(map[int]*seat), want: c.Size}
	for rank := range c.Size {
		m.add(rank)
	}
	return m
}

func (m *Machine) add(rank int) *process {
	p := &process{id: m.next, rank: rank, generation: -1}
	m.next++
	m.unasked++
	m.processes[p.id] = p
	return p
}

func (m *Machine) set(p *process, to state) {
	if p.state == starting {
		m.unasked--
	}
	if p.state = to; to == starting {
		m.unasked++
	}
}

func (m *Machine) seat(rank int) *seat {
	if m.seats[rank] == nil {
		m.seats[rank] = new(seat)
	}
	return m.seats[rank]
}

// Rank returns the rank of a process that has not ended, -1 for another.
func (m *Machine) Rank(id int) int {
	if p := m.processes[id]; p != nil {
		return p.rank
	}
	return -1
}

// Handle handles a request of a process.
func (m *Machine) Handle(id int, r Request) {
	p := m.processes[id]
	switch {
	case p == nil:
	case p.state == out || m.over != "" && r.Ask != nil:
		m.Host.Tell(id, m.whyOut(p))
	case r.Ask != nil:
		m.set(p, asking)
		p.joined, p.lost = r.Ask.Joined, make(map[int]bool)
		m.count(p, r.Ask.Lost)
	case r.Lost != nil && p.state == asking:
		m.count(p, r.Lost)
	case r.Withdraw && p.state == asking:
		m.set(p, starting)
		if p.generation >= 0 {
			m.set(p, member)
		}
		m.Host.Tell(id, Message{Missing: append([]int{p.rank}, m.missing(p)...)})
	case r.Share != nil && p.state == member && p.rank == 0:
		for _, id := range m.members {
			m.tell(id, Message{Shared: r.Share})
		}
	}
}

// count counts ranks as lost for p, which is asking.
func (m *Machine) count(p *process, lost []int) {
	for _, rank := range lost {
		if p.generation == m.Generation && rank >= 0 && rank < len(m.members) {
			p.lost[m.members[rank]] = true
		}
	}
	m.form()
}

func (m *Machine) whyOut(p *process) Message {
	switch {
	case p.out.Left:
		return p.out
	case m.over != "":
		return Message{Out: m.over}
	}
	return Message{Out: fmt.Sprintf("the others count rank %d as lost, and its place is another process's", p.rank)}
}

// tell sends a message to a process unless it has ended.
func (m *Machine) tell(id int, msg Message) {
	if m.processes[id] != nil {
		m.Host.Tell(id, msg)
	}
}

// missing returns the ranks of the next world, but for q's, whose processes have not asked.
func (m *Machine) missing(q *process) []int {
	ranks := make(map[int]bool)
	for _, p := range m.processes {
		if p != q && (p.state == starting || p.state == member) {
			ranks[p.rank] = true
		}
	}
	for rank, s := range m.seats {
		if !s.due.IsZero() {
			ranks[rank] = true
		}
	}
	return slices.Sorted(maps.Keys(ranks))
}

// Ended handles the end of a process. finished means that it has left its world in good order and with success;
// follows, that it failed because of another one, and so takes none of the restarts.
func (m *Machine) Ended(id int, finished, follows bool) Fate {
	p := m.processes[id]
	if p == nil {
		return Ignored
	}
	was := p.state
	m.set(p, out)
	delete(m.processes, id)
	switch {
	case was == out:
		return Ignored
	case m.over != "":
		return Decides
	case finished:
		m.end(fmt.Sprintf("rank %d has finished, so the job forms no other world", p.rank))
		return Decides
	}
	if p.generation == m.Generation && p.generation >= 0 {
		for _, id := range m.members {
			m.tell(id, Message{Broken: fmt.Sprintf("rank %d has ended", p.rank)})
		}
	}
	fate := m.replace(p, follows)
	m.form()
	return fate
}

// End lets no other world be formed, because the job is to end.
func (m *Machine) End(why string) {
	if m.over == "" {
		m.end(why)
	}
}

// end lets no other world be formed.
func (m *Machine) end(why string) {
	m.over, m.doubted = why, time.Time{}
	for _, s := range m.seats {
		s.due = time.Time{}
	}
	for id, p := range m.processes {
		if p.state == asking {
			m.Host.Tell(id, Message{Out: why})
		}
	}
}

// replace lets another process take the place of p, if it may.
func (m *Machine) replace(p *process, follows bool) Fate {
	left := len(m.seated()) + m.due()
	switch {
	case p.rank >= m.want && left >= m.want:
		return Ignored // the job shrinks, and was to do without it
	case m.Restarts == 0 && left < m.Min:
		m.end("no restarts are left, and the job cannot go on with fewer ranks")
		return Decides
	case m.Restarts == 0:
		return Shrinks
	case !follows:
		m.Restarts--
	}
	s := m.seat(p.rank)
	if s.quick++; p.generation >= 0 && m.Now().Sub(p.began) >= quickEnd {
		s.quick = 0
	}
	if s.quick < 2 {
		m.start(p.rank)
	} else {
		s.due = m.Now().Add(min(pauseUnit<<min(s.quick-2, 10), pauseMost))
	}
	return Replaced
}

func (m *Machine) start(rank int) { m.Host.Start(m.add(rank).id, rank) }

// Due reports whether a process is to be started for a rank.
func (m *Machine) Due(rank int) bool { return m.seats[rank] != nil && !m.seats[rank].due.IsZero() }

// due returns how many processes are to be started.
func (m *Machine) due() (n int) {
	for rank := range m.seats {
		if m.Due(rank) {
			n++
		}
	}
	return n
}

// seated returns the processes that are not out, in the order of their ranks.
func (m *Machine) seated() []*process {
	var all []*process
	for _, p := range m.processes {
		if p.state != out {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *process) int { return a.rank - b.rank })
	return all
}

// Wait returns how long Tick need not be called; false: nothing is due.
func (m *Machine) Wait() (time.Duration, bool) {
	var next time.Time
	if !m.doubted.IsZero() {
		next = m.doubted.Add(doubt)
	}
	for _, s := range m.seats {
		if next.IsZero() || !s.due.IsZero() && s.due.Before(next) {
			next = s.due
		}
	}
	return next.Sub(m.Now()), !next.IsZero()
}

// Tick does what is due.
func (m *Machine) Tick() {
	m.form()
	for rank, s := range m.seats {
		if !s.due.IsZero() && !m.Now().Before(s.due) {
			s.due = time.Time{}
			m.start(rank)
		}
	}
}

// Scale asks for another size.
func (m *Machine) Scale(size int) error {
	switch {
	case size < m.Min || size > m.Max:
		return fmt.Errorf("%d ranks: the job can have %d to %d", size, m.Min, m.Max)
	case m.over != "":
		return fmt.Errorf("%s", m.over)
	}
	m.want, m.resizing = size, false
	taken := make(map[int]bool)
	for _, p := range m.seated() {
		if taken[p.rank] = true; p.rank >= size && p.generation < 0 {
			m.dismiss(p)
		}
	}
	for rank, s := range m.seats {
		if rank >= size {
			s.due = time.Time{}
		}
		taken[rank] = taken[rank] || !s.due.IsZero()
	}
	for rank := range size {
		if !taken[rank] {
			m.start(rank)
		}
	}
	m.form()
	return nil
}

// dismiss gives a process no place in a job that shrinks.
func (m *Machine) dismiss(p *process) {
	m.set(p, out)
	p.out = Message{Left: true, Out: fmt.Sprintf("rank %d leaves the job, whose size is %d now", p.rank, m.want)}
	m.Host.Tell(p.id, p.out)
}
