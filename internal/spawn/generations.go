//go:build unix

package spawn

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/generation"
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

	// The job's goroutine owns the rest.
	links    map[int]*link
	released bool // no other process will be started for the larger job
}

type link struct {
	conn net.Conn
	out  chan generation.Message
}

// relays reports whether processes are started in place of others as the launcher of the larger job says.
func (c *Config) relays() bool { return c.Part != nil && c.Part.Relay != nil }

// replaces reports whether processes are started in place of others.
func (c *Config) replaces() bool { return c.Generations != nil || c.relays() }

// most returns the largest number of ranks that the job is to have on this node.
func (c *Config) most() int {
	if c.Generations == nil {
		return c.Programs.Ranks()
	}
	return c.Generations.Max
}

// program returns the program of rank i of those on this node.
func (c *Config) program(i int) Program {
	if c.replaces() {
		return c.Programs[0]
	}
	return c.Programs.Of(i)
}

// listen opens the socket of a job with generations. It returns nil for one without.
func (c *Config) listen() (*generations, error) {
	if !c.replaces() {
		return nil, nil
	}
	l, err := listenIn(c.Folder)
	if err != nil {
		return nil, err
	}
	return &generations{listener: l, links: make(map[int]*link)}, nil
}

// listenIn opens the socket in a job's folder.
func listenIn(folder string) (net.Listener, error) {
	path := filepath.Join(folder, Socket)
	if len(path) > socketPath {
		return nil, fmt.Errorf("the path of a socket, %s, is longer than %d bytes; set TMPDIR to a folder with a shorter path", path, socketPath)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		err = fmt.Errorf("listening for the ranks: %w", err)
	}
	return l, err
}

// acceptIn calls talk in a goroutine for every connection, until the socket is closed.
func acceptIn(l net.Listener, talk func(net.Conn)) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // too many files are open
			time.Sleep(10 * time.Millisecond)
		default:
			go talk(c)
		}
	}
}

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

// begin starts to accept connections.
func (s *state) begin() {
	g := s.generations
	if g == nil {
		return
	}
	if !s.cfg.relays() {
		c := *s.cfg.Generations
		c.Now, c.Job, c.Size, c.Host = time.Now, s.cfg.Job, s.cfg.Programs.Ranks(), host{s}
		s.elastic = NewElasticJob(c, s.m)
	}
	go acceptIn(g.listener, s.talk)
}

func (j *Job) talk(c net.Conn) {
	defer c.Close()
	r, text, err := greeting(c)
	if err != nil {
		return
	}
	if answerScale(c, text, j.scale) {
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
			switch g := s.generations; {
			case g.links[id] != l:
			case s.elastic != nil:
				s.elastic.Handle(id, q)
			default:
				s.cfg.Part.Relay(id, q)
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

func (j *Job) scale(ranks int) (err error) {
	scale := func(s *state) {
		if err = errNotHere; s.elastic != nil {
			err = s.elastic.Scale(ranks)
		}
	}
	if !j.do(scale) {
		return errEnds
	}
	return err
}

var errNotHere = errors.New("its launcher is on another host; use 'cohort scale' there")

// ServeScale answers Scale in a folder by a function, until stop is called.
func ServeScale(folder string, scale func(ranks int) error) (stop func(), err error) {
	l, err := listenIn(folder)
	if err != nil {
		return nil, err
	}
	go acceptIn(l, func(c net.Conn) {
		defer c.Close()
		if _, text, err := greeting(c); err == nil {
			answerScale(c, text, scale)
		}
	})
	return func() { l.Close() }, nil
}

// greeting reads the first line of a connection.
func greeting(c net.Conn) (r *bufio.Reader, text string, err error) {
	r = bufio.NewReaderSize(c, mostText)
	c.SetReadDeadline(time.Now().Add(helloLimit))
	line, err := r.ReadSlice('\n')
	c.SetReadDeadline(time.Time{})
	return r, strings.TrimSuffix(string(line), "\n"), err
}

// process returns the process with an id, nil if there has been none.
func (j *Job) process(id int) *rank {
	for _, r := range j.ranks {
		if r.id == id {
			return r
		}
	}
	return nil
}

// link makes c the connection of a process, which has no other one. It returns nil if that cannot be.
func (s *state) link(id int, c net.Conn) *link {
	if r := s.process(id); r == nil || !r.running() || s.generations.links[id] != nil {
		return nil
	}
	l := &link{c, make(chan generation.Message, mostUnread)}
	s.generations.links[id] = l
	return l
}

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

func (s *state) another(id, number, place int) error {
	return s.onThread(func() error {
		err := s.startRank(&rank{id: id, number: number, place: place, program: s.cfg.program(place)}, nil)
		if err == nil {
			s.m.Running++
		}
		return err
	})
}

// host is the generation.Host of a job.
type host struct{ *state }

// Start starts a process for a rank.
func (h host) Start(id, rank int) {
	u := h.elastic
	if u.Ending() {
		return // an earlier start has failed
	}
	u.Started(rank)
	if err := h.another(id, rank, rank); err != nil {
		h.m.End(1, err, err.Error())
	}
}

// Kill ends a process that has not asked for a place in time.
func (h host) Kill(id int) {
	if r := h.process(id); r != nil && r.running() {
		h.logf("rank %d has not asked for a place in the next world in time: killed", r.number)
		syscall.Kill(-r.pgid, syscall.SIGKILL)
	}
}

// Tell sends a message to a process. It does not block.
func (h host) Tell(id int, m generation.Message) {
	l := h.generations.links[id]
	if m.Place != nil {
		if r := h.process(id); r != nil {
			r.number = m.Place.Rank
		}
	}
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
