//go:build unix

package spawn

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
)

const (
	socketPath = 107      // longest name of a socket: sun_path of unix(7), less its zero
	mostText   = 64 << 10 // longest line from a process
	mostUnread = 64       // messages for a process that does not read, before its connection is closed
)

// generations is the launcher's side of a job with generations. The processes of the job connect to a socket in its
// folder. Each sends a line with its id, and then a generation.Request in each line; it gets generation.Messages. Scale sends
// one line, and gets a scaled.
type generations struct {
	listener net.Listener
	changes  chan func(*state) // of connections, for the job's goroutine

	// The job's goroutine owns the rest.
	machine *generation.Machine
	links   map[int]*link
	ended   map[int]job.Exit // ends of processes in whose places others are still to be started, by rank
}

// link is the connection of a process.
type link struct {
	conn net.Conn
	out  chan generation.Message
}

// most returns the largest number of ranks that the job can have on this node.
func (c *Config) most() int {
	if c.Generations == nil {
		return c.Programs.Ranks()
	}
	return c.Generations.Max
}

// program returns the program of rank i of those on this node.
func (c *Config) program(i int) Program {
	if c.Generations != nil {
		i = 0
	}
	return c.Programs.Of(i)
}

// listen opens the socket of a job with generations. It returns nil for one without.
func (c *Config) listen() (*generations, error) {
	if c.Generations == nil {
		return nil, nil
	}
	path := filepath.Join(c.Folder, Socket)
	if len(path) > socketPath {
		return nil, fmt.Errorf("the path of a socket, %s, is longer than %d bytes; set TMPDIR to a folder with a shorter path", path, socketPath)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening for the ranks: %w", err)
	}
	return &generations{
		listener: l, changes: make(chan func(*state)), links: make(map[int]*link), ended: make(map[int]job.Exit),
	}, nil
}

// close closes the socket and all connections.
func (g *generations) close() {
	if g == nil {
		return
	}
	g.listener.Close()
	for id := range g.links {
		g.unlink(id)
	}
}

// env returns what tells a process how to find its launcher.
func (g *generations) env(id int) []string {
	if g == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s=%d %s", generation.Env, id, g.listener.Addr())}
}

func (g *generations) requests() <-chan func(*state) {
	if g == nil {
		return nil
	}
	return g.changes
}

// wait returns a channel that receives when the machine's Tick is to be called, nil for never.
func (g *generations) wait() <-chan time.Time {
	if g == nil {
		return nil
	}
	if pause, due := g.machine.Wait(); due {
		return time.After(pause)
	}
	return nil
}

// begin starts to accept connections.
func (s *state) begin() {
	g := s.generations
	if g == nil {
		return
	}
	c := *s.cfg.Generations
	c.Now, c.Job, c.Size, c.Host = time.Now, s.cfg.Job, s.cfg.Programs.Ranks(), host{s}
	g.machine = generation.New(c)
	go func() {
		for {
			c, err := g.listener.Accept()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil: // too many files are open
				time.Sleep(10 * time.Millisecond)
			default:
				go s.talk(c)
			}
		}
	}()
}

// do calls f in the job's goroutine. It reports false if the job has ended.
func (j *Job) do(f func(*state)) bool {
	called := make(chan struct{})
	select {
	case j.generations.changes <- func(s *state) { f(s); close(called) }:
		<-called
		return true
	case <-j.done:
		return false
	}
}

// talk handles a connection.
func (j *Job) talk(c net.Conn) {
	defer c.Close()
	r := bufio.NewReaderSize(c, mostText)
	c.SetReadDeadline(time.Now().Add(helloLimit))
	first, err := r.ReadSlice('\n')
	if err != nil {
		return
	}
	c.SetReadDeadline(time.Time{})
	text := strings.TrimSuffix(string(first), "\n")
	if n, ok := strings.CutPrefix(text, "scale "); ok {
		j.scale(c, n)
		return
	}
	id, err := strconv.Atoi(text)
	if err != nil {
		return
	}
	var l *link
	j.do(func(s *state) { l = s.link(id, c) })
	if l == nil {
		return
	}
	go l.write()
	for {
		var q generation.Request
		line, err := r.ReadSlice('\n')
		if err != nil || json.Unmarshal(line, &q) != nil {
			break
		}
		handle := func(s *state) {
			if s.generations.links[id] == l {
				s.generations.machine.Handle(id, q)
			}
		}
		if !j.do(handle) {
			return
		}
	}
	j.do(func(s *state) {
		if s.generations.links[id] == l {
			s.generations.unlink(id)
		}
	})
}

// scale asks the job for another size, and answers.
func (j *Job) scale(c net.Conn, text string) {
	ranks, err := strconv.Atoi(text)
	if err != nil {
		return
	}
	var a scaled
	scale := func(s *state) {
		g := s.generations
		if err := g.machine.Scale(ranks); err != nil {
			a.Error = err.Error()
			return
		}
		for rank := range g.ended {
			if !g.machine.Due(rank) { // the job does not need it any more
				delete(g.ended, rank)
				s.m.Running--
			}
		}
		s.logf("the job is to have %s", job.Count(ranks, "rank"))
	}
	if j.do(scale) {
		_ = json.NewEncoder(c).Encode(a)
	}
}

// link makes c the connection of a process, which has no other one. It returns nil if that cannot be.
func (s *state) link(id int, c net.Conn) *link {
	if id < 0 || id >= len(s.ranks) || !s.ranks[id].running() || s.generations.links[id] != nil {
		return nil
	}
	l := &link{c, make(chan generation.Message, mostUnread)}
	s.generations.links[id] = l
	return l
}

// unlink closes the connection of a process, if it has one.
func (g *generations) unlink(id int) {
	if l := g.links[id]; l != nil {
		close(l.out)
		l.conn.Close()
		delete(g.links, id)
	}
}

// write sends the messages, until unlink or an error, after which nobody reads.
func (l *link) write() {
	to := json.NewEncoder(l.conn)
	for m := range l.out {
		if to.Encode(m) != nil {
			l.conn.Close()
			return
		}
	}
}

// ending reports whether the job is to end: then no process is started in place of another.
func (s *state) ending() bool { return s.m.Request != 0 || !s.m.Began.IsZero() }

// succeeded handles the end of a process of a job with generations. It reports whether the job's status cannot depend
// on it, because another process takes its place.
func (s *state) succeeded(e exit, x *job.Exit) bool {
	g := s.generations
	g.unlink(e.rank)
	if x.Outlived || x.Aborted || s.ending() {
		return false
	}
	left := g.machine.Restarts
	fate := g.machine.Ended(e.rank, x.Status == 0, x.Follows && !e.wait.Signaled())
	switch fate {
	case generation.Shrinks:
		x.GoesOn = true
	case generation.Ignored:
		x.Outlived = true
	case generation.Replaced:
		text := fmt.Sprintf("%s %s after %s; starting it again", x.Name, x.How, x.After)
		if all := s.cfg.Generations.Restarts; g.machine.Restarts < left {
			text += fmt.Sprintf(" (restart %d of %d)", all-g.machine.Restarts, all)
		}
		s.m.Say(text, x.Drained)
		if g.machine.Due(x.Rank) { // later; until then it counts as running
			g.ended[x.Rank] = *x
			s.m.Running++
		}
	}
	return fate == generation.Replaced
}

// settle blames processes in whose places no others are started any more.
func (s *state) settle() {
	g := s.generations
	if g == nil {
		return
	}
	if s.ending() {
		g.machine.End("the job is ending")
	}
	for _, rank := range slices.Sorted(maps.Keys(g.ended)) {
		if !g.machine.Due(rank) {
			x := g.ended[rank]
			delete(g.ended, rank)
			s.m.Running--
			s.m.Ended(x)
		}
	}
}

// host is the generation.Host of a job.
type host struct{ *state }

// Start starts a process for a rank.
func (h host) Start(_, rank int) {
	s := h.state
	if s.ending() {
		return // an earlier start has failed
	}
	if _, ok := s.generations.ended[rank]; ok {
		delete(s.generations.ended, rank)
		s.m.Running--
	}
	err := s.onThread(func() error {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer null.Close()
		return s.startRank(rank, null)
	})
	if err != nil {
		s.m.End(1, err, err.Error())
		return
	}
	s.m.Running++
}

// Kill ends a process that the others count as lost.
func (h host) Kill(id int) {
	r := h.ranks[id]
	h.logf("rank %d has not ended, and the others count it as lost: killed", r.number)
	syscall.Kill(-r.pgid, syscall.SIGKILL)
}

// Tell sends a message to a process. It does not block.
func (h host) Tell(id int, m generation.Message) {
	if m.Place != nil {
		h.ranks[id].number = m.Place.Rank
	}
	l := h.generations.links[id]
	if l == nil {
		return
	}
	select {
	case l.out <- m:
	default:
		h.generations.unlink(id)
	}
}

// Fail ends the job.
func (h host) Fail(text string) { h.m.End(1, errors.New(text), text) }
