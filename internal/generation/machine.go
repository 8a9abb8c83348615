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

	// A process that has not asked, and that others count as lost, is killed after doubt if most have asked: its end may not
	// have been reported yet. It is killed after patience if not: those that have not asked may be the larger side of a cut.
	doubt    = 300 * time.Millisecond
	patience = 10 * time.Second // also for a process to answer when its world cannot be joined, or when it is asked whether it lives
)

// Config describes a job.
type Config struct {
	Now      func() time.Time
	Job      string // its name
	Size     int    // of the first generation
	Min, Max int    // sizes that the job may have
	Restarts int    // how many times processes are started in place of others
	Host     Host
}

// Host carries out what a [Machine] decides. Its methods must not call the machine.
type Host interface {
	Start(id, rank int)     // starts a process for a rank
	Kill(id int)            // ends a process that has not asked in time
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
	Generation int // of the last world that was formed, -1 before the first

	processes map[int]*process // those that have not ended, by id
	unasked   int              // how many of them are starting
	next      int              // the id of the next process
	world     world            // the last one that all its ranks have joined
	members   []int            // ids of the ranks of the last one that was formed
	unjoined  int              // how many of them have not joined it; below 0: it cannot be joined
	failed    bool             // a restart has been taken since it was formed
	want      int              // the size of the next world, if nothing is lost for good
	scaled    bool             // Scale has asked for want, and no world has had it since
	resizing  bool             // the members have been told so
	starts    map[int]*starts  // by rank
	doubted   time.Time        // when members that have not asked are killed; zero: none are
	seen      time.Time        // when the owner last called for an event
	over      string           // why no further world is formed
}

// world is a world with the ids of its ranks.
type world struct {
	generation int
	ids        []int
}

type state uint8

const (
	starting state = iota
	asking
	joining
	joined
	member
	out
)

type process struct {
	id, rank   int // in its generation, or the one that it is started for
	state      state
	generation int          // of the world that it is in, or is joining; -1: of none
	began      time.Time    // when it got its first place
	answer     time.Time    // when it is killed if it has not answered; zero: it need not answer
	heard      time.Time    // of a member: when others began to wait for it, or it has answered since; zero: nobody waits
	silent     time.Time    // when it is killed if it has not answered whether it lives; zero: it has not been asked
	lost       map[int]bool // ids of its world that it counts as lost
	out        Message      // why it is out, if it was dismissed
}

// starts is the record of a rank's processes.
type starts struct {
	quick int       // processes in a row that ended at once
	due   time.Time // when the next one is started; zero: no start is due
}

// New returns the machine of a job. Its owner starts the first processes, whose ids are their ranks.
func New(c Config) *Machine {
	m := &Machine{Config: c, Generation: -1, world: world{generation: -1}, processes: make(map[int]*process), starts: make(map[int]*starts), want: c.Size}
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

func (m *Machine) startsOf(rank int) *starts {
	if m.starts[rank] == nil {
		m.starts[rank] = new(starts)
	}
	return m.starts[rank]
}

// Rank returns the rank of a process that has not ended, -1 for another.
func (m *Machine) Rank(id int) int {
	if p := m.processes[id]; p != nil {
		return p.rank
	}
	return -1
}

// Active reports whether a process has not ended, and is not out.
func (m *Machine) Active(id int) bool {
	p := m.processes[id]
	return p != nil && p.state != out
}

// Outcasts returns the ranks of the processes that have not ended, if the others count them all as lost and no others are to
// be started.
func (m *Machine) Outcasts() (ranks []int) {
	if m.due() > 0 {
		return nil
	}
	for _, p := range m.processes {
		if p.state != out || p.out.Left {
			return nil
		}
		ranks = append(ranks, p.rank)
	}
	return slices.Compact(slices.Sorted(slices.Values(ranks)))
}

// Handle handles a request of a process.
func (m *Machine) Handle(id int, r Request) {
	m.look()
	p := m.processes[id]
	switch {
	case p == nil:
	case p.state == out || m.over != "" && r.Ask != nil:
		m.Host.Tell(id, m.whyOut(p))
	case r.Ask != nil:
		if p.state == joining || p.state == joined {
			return // its place is on its way
		}
		m.set(p, asking)
		p.answer, p.heard, p.silent, p.lost = time.Time{}, time.Time{}, time.Time{}, make(map[int]bool)
		m.count(p, r.Ask.Lost)
	case r.Lost != nil && p.state == asking:
		m.count(p, r.Lost)
	case r.Withdraw && p.state == asking:
		m.set(p, starting)
		if p.generation >= 0 {
			m.set(p, member)
		}
		m.Host.Tell(id, Message{Missing: append([]int{m.called(p)}, m.missing(p)...)})
		m.form() // when nobody asks any more, the members may learn of another size
	case r.Joined && p.state == joining:
		m.set(p, joined)
		if m.unjoined--; m.unjoined == 0 {
			m.world, m.scaled = world{m.Generation, m.members}, m.want != len(m.members)
			for _, id := range m.members {
				m.set(m.processes[id], member)
				m.Host.Tell(id, Message{Go: true})
			}
			m.form() // the members may learn of another size
		}
	case r.Failed && (p.state == joining || p.state == joined):
		m.breaks(fmt.Sprintf("rank %d could not join", p.rank))
		p.answer = time.Time{}
		m.form() // the members may learn of another size
	case r.Failed:
		p.answer = time.Time{}
	case r.Alive && !p.silent.IsZero():
		p.heard, p.silent = m.Now(), time.Time{}
	case r.Share != nil && p.state == joining && p.rank == 0:
		for _, id := range m.members {
			m.tell(id, Message{Shared: r.Share})
		}
	}
}

// breaks ends the attempt to join the last world. Its processes are in the world from which they came, if any, until they
// ask again.
func (m *Machine) breaks(why string) {
	m.unjoined, m.resizing = -1, false
	for _, id := range m.members {
		p := m.processes[id]
		if p == nil || p.state != joining && p.state != joined {
			continue
		}
		m.set(p, starting)
		p.generation, p.answer = -1, m.Now().Add(patience)
		if slices.Contains(m.world.ids, id) {
			m.set(p, member)
			p.generation = m.world.generation
		}
		m.Host.Tell(id, Message{Broken: why})
	}
}

// count counts ranks as lost for p, which is asking.
func (m *Machine) count(p *process, lost []int) {
	for _, rank := range lost {
		if p.generation == m.world.generation && rank >= 0 && rank < len(m.world.ids) {
			p.lost[m.world.ids[rank]] = true
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

// called returns the number by which the others know a process: its rank in their world, or else in the next one.
func (m *Machine) called(p *process) int {
	if rank := slices.Index(m.world.ids, p.id); rank >= 0 {
		return rank
	}
	return p.rank
}

// missing returns the ranks whose processes have not asked, but for q's.
func (m *Machine) missing(q *process) []int {
	ranks := make(map[int]bool)
	for _, p := range m.processes {
		if p != q && (p.state == starting || p.state == member) {
			ranks[m.called(p)] = true
		}
	}
	for rank, s := range m.starts {
		if !s.due.IsZero() {
			ranks[rank] = true
		}
	}
	return slices.Sorted(maps.Keys(ranks))
}

// Ended handles the end of a process. finished means that it has left its world in good order and with success;
// follows, that it takes no restart if one has been taken since the present world was formed: it failed because of another
// one, or with its host.
func (m *Machine) Ended(id int, finished, follows bool) Fate {
	m.look()
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
	case m.over != "" && p.began.IsZero() && p.rank >= len(m.members):
		return Ignored // it was for a size that the job has not taken
	case m.over != "":
		return Decides
	}
	if was == joining || was == joined {
		m.breaks(fmt.Sprintf("rank %d has ended", p.rank))
	}
	if finished {
		m.end(fmt.Sprintf("rank %d has finished, so the job forms no other world", p.rank))
		return Decides
	}
	fate := m.replace(p, follows)
	m.form()
	return fate
}

// StopRestarts lets no process be started in place of another any more.
func (m *Machine) StopRestarts() {
	m.Restarts, m.failed = 0, false
	for _, s := range m.starts {
		s.due = time.Time{}
	}
	m.form()
}

// End lets no other world be formed, because the job is to end.
func (m *Machine) End(why string) {
	if m.over == "" {
		m.end(why)
	}
}

func (m *Machine) end(why string) {
	m.over, m.doubted = why, time.Time{}
	for _, s := range m.starts {
		s.due = time.Time{}
	}
	for id, p := range m.processes {
		p.answer, p.heard, p.silent = time.Time{}, time.Time{}, time.Time{}
		if p.state == asking {
			m.Host.Tell(id, Message{Out: why})
		}
	}
}

// replace lets another process take the place of p, if it may.
func (m *Machine) replace(p *process, follows bool) Fate {
	left := len(m.active()) + m.due()
	switch {
	case p.rank >= m.want && left >= m.want:
		return Ignored // the job shrinks, and was to do without it
	case follows && m.failed: // with none taken, it takes one
	case m.Restarts == 0 && left < m.Min:
		m.end("no restarts are left, and the job cannot go on with fewer ranks")
		return Decides
	case m.Restarts == 0:
		m.want = min(m.want, left)
		return Shrinks
	default:
		m.Restarts--
		m.failed = true
	}
	s := m.startsOf(p.rank)
	if s.quick++; !p.began.IsZero() && m.Now().Sub(p.began) >= quickEnd {
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
func (m *Machine) Due(rank int) bool { return m.starts[rank] != nil && !m.starts[rank].due.IsZero() }

// due returns how many processes are to be started.
func (m *Machine) due() (n int) {
	for rank := range m.starts {
		if m.Due(rank) {
			n++
		}
	}
	return n
}

// active returns the processes that are not out, in the order of their ranks.
func (m *Machine) active() []*process {
	var all []*process
	for _, p := range m.processes {
		if p.state != out {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *process) int { return a.rank - b.rank })
	return all
}

// past reports whether a time is set and has come.
func (m *Machine) past(at time.Time) bool { return !at.IsZero() && !m.Now().Before(at) }

// Tick does what is due.
func (m *Machine) Tick() {
	m.look()
	for _, p := range m.active() {
		if (m.past(p.answer) || m.past(p.silent)) && !m.expel(p) {
			return
		}
	}
	for rank, s := range m.starts {
		if m.past(s.due) {
			s.due = time.Time{}
			m.start(rank)
		}
	}
	m.form()
}

// expel takes a process out, and lets another take its place. All that are taken out before the next world is formed take one
// restart: they may be the ranks of one host. It reports false if the job cannot go on.
func (m *Machine) expel(p *process) bool {
	told := p.state == asking
	p.answer, p.heard, p.silent = time.Time{}, time.Time{}, time.Time{}
	if m.set(p, out); told {
		m.Host.Tell(p.id, m.whyOut(p))
	} else {
		m.Host.Kill(p.id)
	}
	if m.replace(p, true) == Decides {
		m.Host.Fail(m.over)
		return false
	}
	return true
}

// Scale asks for another size.
func (m *Machine) Scale(size int) error {
	m.look()
	switch {
	case size < m.Min || size > m.Max:
		return fmt.Errorf("%d ranks: the job can have %d to %d", size, m.Min, m.Max)
	case m.over != "":
		return fmt.Errorf("%s", m.over)
	}
	lacks := m.Lacks(size)
	m.want, m.scaled, m.resizing = size, true, false
	for _, p := range m.active() {
		if p.rank >= size && p.generation < 0 {
			m.dismiss(p)
		}
	}
	for rank, s := range m.starts {
		if rank >= size {
			s.due = time.Time{}
		}
	}
	for _, rank := range lacks {
		m.start(rank)
	}
	m.form()
	return nil
}

// Lacks returns the ranks for which Scale would start processes. Members stay, whatever their ranks, while size allows it.
func (m *Machine) Lacks(size int) (ranks []int) {
	taken, have := make(map[int]bool), 0
	for _, p := range m.active() {
		if taken[p.rank] = true; p.rank < size || p.generation >= 0 {
			have++
		}
	}
	for rank := range m.starts {
		if m.Due(rank) {
			if taken[rank] = true; rank < size {
				have++
			}
		}
	}
	for rank := 0; have < size; rank++ {
		if !taken[rank] {
			ranks = append(ranks, rank)
			have++
		}
	}
	return ranks
}

// dismiss gives a process no place in a job that shrinks.
func (m *Machine) dismiss(p *process) {
	m.set(p, out)
	p.answer = time.Time{}
	p.out = Message{Left: true, Out: fmt.Sprintf("rank %d leaves the job, whose size is %d now", p.rank, m.want)}
	m.Host.Tell(p.id, p.out)
}
