//go:build unix

package remote

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

const (
	endLimit    = spawn.KillAfter + 3*time.Second
	hurried     = int32(endLimit / pingEvery)
	flightLimit = 5 * time.Second
	flushLimit  = 200 * time.Millisecond // for the agents to receive that this process stops
)

// judge supervises the ranks. Its fields belong to its goroutine.
type judge struct {
	*launcher
	m               *job.Machine
	print           *printer
	events          chan event
	broken          chan error // the output cannot be written
	done            chan struct{}
	log             *job.Log
	drained         map[int]chan struct{} // by id, of processes that have ended: closed when its output has been passed on
	outputAbandoned bool                  // the user does not wait for the last output

	elastic  *spawn.ElasticJob // nil: no processes take the places of lost ones
	hostOf   map[int]*host     // by rank, where its last process was started
	asked    chan func()       // calls of others
	noRoom   string            // why a rank cannot be started
	saidLast bool              // the hosts know that no other processes will be started

	flights    []string // files of the flight recorder that have been stored, with other processes in the places of lost ones
	generation int      // of the world that they are of, -1 for none
}

func (j *launcher) newJudge() *judge {
	s := &judge{
		launcher: j, events: make(chan event), broken: make(chan error, 1), done: make(chan struct{}),
		drained: map[int]chan struct{}{}, hostOf: map[int]*host{}, asked: make(chan func()), generation: -1,
	}
	s.print = newPrinter(func(err error) { s.broken <- err })
	s.log = job.NewLog(j.cfg.Programs.Ranks(), s.say)
	s.m = job.New(job.Config{
		Now: time.Now, Ranks: j.cfg.Programs.Ranks(), Resilient: j.cfg.Resilient, Timeout: j.cfg.Timeout, Grace: j.cfg.Grace, KillAfter: endLimit,
		Say: s.log.Say, Terminate: func() { s.sendAll(kindEnd) }, Kill: s.giveUp, Ask: func() int { return s.sendAll(kindAsk) },
	})
	for _, h := range j.hosts {
		h.running = map[int]bool{}
		for rank := h.first; rank < h.first+h.count; rank++ {
			h.running[rank], s.hostOf[rank] = true, h
		}
	}
	if j.cfg.Generations != nil {
		c := *j.cfg.Generations
		c.Now, c.Job, c.Size, c.Host = time.Now, j.name, j.cfg.Programs.Ranks(), replacer{s}
		s.elastic = spawn.NewElasticJob(c, s.m)
	}
	return s
}

// supervise starts the ranks and returns the job's status at its end. internal/job decides what
// follows from an event:
//
//  1. Until each host's ranks have ended, or the host is lost, it passes their reports on.
//  2. The first failure, or another reason, ends the ranks of all hosts. A host that does not confirm this
//     within endLimit is given up, as is one without ranks that is silent for so long once the job ends.
//  3. The remaining hosts send the files of the flight recorder, if requested.
//  4. The last output is written.
func (j *launcher) supervise() (status int, err error) {
	j.begun = time.Now()
	s := j.newJudge()
	if s.elastic != nil {
		stop, err := spawn.ServeScale(j.cfg.Folder, s.scale)
		if err != nil {
			return 2, err
		}
		defer stop()
		j.cfg.Begun()
	}
	for _, h := range j.hosts {
		h.link.say(kindGo)
	}
	input := newCredit(inputWindow)
	defer input.close()
	for _, h := range j.hosts {
		go s.read(h, input)
	}
	go spawn.Feed(j.cfg.Stdin, &inputWriter{j.hosts[0].link, input}, s.done)
	defer close(s.done)
	for !s.all((*host).over) {
		if s.step(s.cfg.Signals); s.outputAbandoned {
			return s.m.Status, nil
		}
		s.settle()
		s.hurry()
	}
	s.goodbye()
	<-s.log.Close()
	s.m.Say = func(text string, _ <-chan struct{}) { s.say(text) }
	s.print.close()
	for {
		select {
		case <-s.print.done:
			select {
			case err := <-s.broken:
				s.m.OutputFailed(err)
			default:
			}
			return s.m.Status, nil
		case err := <-s.broken:
			s.m.OutputFailed(err)
		case sig := <-j.cfg.Signals:
			if n, _ := sig.(syscall.Signal); job.AsksForEnd(sig) { // do not wait for the reader
				s.m.LostOutput(n)
				return s.m.Status, nil
			}
		}
	}
}

// step waits for one event and handles it. It takes signals from a channel, or none if the channel is nil.
func (s *judge) step(signals <-chan os.Signal) {
	select {
	case e := <-s.events:
		s.handle(e)
	case sig := <-signals:
		s.pass(sig)
	case err := <-s.broken:
		s.m.OutputFailed(err)
	case <-s.m.Wait():
		s.m.Tick()
	case f := <-s.asked:
		f()
	case <-s.elastic.Timer():
		s.elastic.Tick()
	}
}

// hurry has the hosts checked more often on which no ranks run and, as the job ends, none will. They may still wait for the reader of
// their output, and answer meanwhile.
func (s *judge) hurry() {
	for _, h := range s.hosts {
		if (s.m.Running == 0 || s.m.Phase == job.Ends) && len(h.running) == 0 && !h.over() {
			h.hurry()
		}
	}
}

// giveUp gives up the hosts that have not ended their ranks. Others may wait for the reader of their output.
func (s *judge) giveUp() {
	for _, h := range s.hosts {
		if !h.over() && len(h.running) > 0 {
			s.say(fmt.Sprintf("host %s has not confirmed that its ranks have ended; giving it up", h.Name))
			h.shell.kill()
		}
	}
}

// read passes a host's messages on until its connection ends.
func (s *judge) read(h *host, input *credit) {
	for {
		e := h.next()
		switch {
		case e.err != nil:
		case e.Kind == kindAck:
			input.give(e.N)
			continue
		case e.Kind == kindOutput:
			s.output(e, []io.Writer{s.cfg.Stdout, s.cfg.Stderr}[min(max(e.N, 0), 1)])
			continue
		case e.Kind == kindCopy:
			if s.files != nil && s.has(h, e.ID) && (e.N == 0 || e.N == 1) {
				s.output(e, s.files.Writer(e.ID, e.N))
			}
			continue
		}
		select {
		case s.events <- e:
		case <-s.done:
			return
		}
		if e.err != nil {
			return
		}
	}
}

func (s *judge) output(e event, w io.Writer) {
	s.print.add(piece{w, e.Data, func() { e.h.link.send(message{Kind: kindAck, N: len(e.Data)}) }})
}

func (s *judge) handle(e event) {
	h := e.h
	if e.err != nil {
		if h.over() {
			h.state = hostDone
		} else {
			s.lose(h, e.err)
		}
		return
	}
	switch e.Kind {
	case kindExit:
		if e.Exit != nil && h.running[e.Exit.ID] {
			s.exited(h, *e.Exit)
		}
	case kindRequest:
		if e.Request != nil && s.elastic != nil && h.running[e.ID] {
			s.elastic.Handle(e.ID, *e.Request)
		}
	case kindDrained:
		if s.drained[e.ID] != nil {
			close(s.drained[e.ID])
			delete(s.drained, e.ID)
		}
	case kindLog:
		s.say(h.Name + ": " + string(e.Data))
	case kindFault:
		s.m.End(2, nil, fmt.Sprintf("host %s: %s", h.Name, e.Data))
		s.lostRanks(h)
		h.state = hostEnded
	case kindAnswer:
		s.m.Answer(e.Yes)
	case kindGoesOn:
		s.m.Continue()
	case kindStopped:
		switch {
		case h.over():
		case e.Yes:
			h.state = hostStopped
			s.m.Inquire()
		default:
			h.state = hostRuns
		}
	case kindDrains:
		if !h.over() {
			h.state = hostDrains
		}
	case kindEnded:
		h.state = hostEnded
	case kindFlight:
		s.keepFlight(h, e.ID, e.Data)
	case kindDone:
		if h.over() {
			h.state = hostDone
		}
	}
	s.endStopped()
}

// endStopped ends the stopped ranks of a job that goes on once no others are left, as internal/spawn does on one node.
func (s *judge) endStopped() {
	if s.elastic == nil && !s.m.Resilient {
		return
	}
	for _, h := range s.hosts {
		if h.state != hostStopped && len(h.running) > 0 {
			return
		}
	}
	for _, h := range s.hosts {
		if h.state == hostStopped {
			h.state = hostRuns
			h.link.say(kindAlone)
		}
	}
}

func (s *judge) exited(h *host, x job.Exit) {
	if x.GoesOn {
		s.m.Continue()
	}
	delete(h.running, x.ID)
	s.m.Running--
	s.drained[x.ID] = make(chan struct{})
	s.m.Judge(&x)
	x.Name, x.Drained = s.cfg.Programs.Name(x.Rank)+" on "+h.Name, s.drained[x.ID]
	if s.elastic != nil && s.elastic.Ended(&x) {
		return
	}
	first := !s.m.Succeeded
	if s.m.Ended(x); first && s.m.Succeeded {
		s.sendAll(kindNote)
	}
}

// lose handles the loss of a host and its ranks.
func (s *judge) lose(h *host, err error) {
	h.state = hostLost
	lost, ranks := s.lostRanks(h)
	why := strings.Join(strings.Fields(h.explain(context.Background(), err).Error()), " ")
	text := fmt.Sprintf("host %s was lost after %s (%s)", h.Name, job.Seconds(time.Since(s.begun)), why)
	if len(ranks) == 0 {
		s.say(text)
		return
	}
	text += ", and " + backend.RankList(ranks) + " with it"
	if s.elastic == nil || s.all((*host).over) || !s.elastic.HostLost(text, lost) {
		s.m.HostLost(text)
	}
}

// lostRanks removes the processes of a host that still run, and returns how they end, and their ranks.
func (s *judge) lostRanks(h *host) (lost []job.Exit, ranks []int) {
	for id := range h.running {
		x := job.Exit{Rank: s.rank(id), ID: id, Status: job.StatusLost, How: "was lost with its host", After: job.Seconds(time.Since(s.begun))}
		x.Name = s.cfg.Programs.Name(x.Rank) + " on " + h.Name
		lost = append(lost, x)
	}
	slices.SortFunc(lost, func(a, b job.Exit) int { return cmp.Or(a.Rank-b.Rank, a.ID-b.ID) })
	s.m.Running -= len(lost)
	clear(h.running)
	for _, x := range lost {
		ranks = append(ranks, x.Rank)
	}
	return lost, slices.Compact(ranks) // a rank may have a process that is out, and another
}

// sendAll sends a message to all hosts whose ranks may run, and returns their number.
func (s *judge) sendAll(k kind) (n int) {
	for _, h := range s.hosts {
		if !h.over() {
			h.link.say(k)
			n++
		}
	}
	return n
}

// pass passes a signal on to all ranks.
func (s *judge) pass(sig os.Signal) {
	n, ok := sig.(syscall.Signal)
	if !ok || n == syscall.SIGPIPE { // the failed write is reported instead
		return
	}
	for _, h := range s.hosts {
		h.link.send(message{Kind: kindSignal, N: int(n)})
	}
	if n == syscall.SIGTSTP {
		for _, h := range s.hosts { // the agents must receive it before this process stops sending
			h.link.deliver(message{Kind: kindPing}, time.After(flushLimit))
		}
	}
	job.Suspend(n)
	first := s.m.Request == 0
	s.m.Signal(n)
	drains := s.all(func(h *host) bool { return h.state >= hostDrains })
	if job.AsksForEnd(n) && drains && (first || s.m.Phase == job.Ends) { // no process is left: do not wait for the reader
		s.m.LostOutput(n)
		s.outputAbandoned = true
	}
}

func (s *judge) say(text string) {
	s.print.add(piece{w: s.cfg.Stderr, b: []byte("cohort: " + text + "\n")})
}

// goodbye lets the hosts send the files of the flight recorder if they are needed, and waits for that.
func (s *judge) goodbye() {
	s.m.Stop() // no rank is left to which it matters what the hosts answer
	want := s.cfg.Flight != "" && (s.m.Status != 0 || s.cfg.KeepFlight)
	for _, h := range s.hosts {
		h.link.send(message{Kind: kindBye, Yes: want})
	}
	limit := time.AfterFunc(flightLimit, func() {
		for _, h := range s.hosts {
			h.shell.kill()
		}
	})
	defer limit.Stop()
	for !s.all(func(h *host) bool { return h.state >= hostDone }) {
		s.step(nil)
	}
}

// keepFlight stores a file of the flight recorder. Of the worlds that the job has had, only files of the last one remain.
func (s *judge) keepFlight(h *host, rank int, b []byte) {
	if s.cfg.Flight == "" || !s.has(h, rank) || s.elastic != nil && !s.ofLast(b) {
		return
	}
	path := filepath.Join(s.cfg.Flight, flight.FileName(rank))
	if err := flight.WriteFile(path, b); err != nil {
		s.say(fmt.Sprintf("writing the flight recorder's files: %v", err))
	}
	s.flights = append(s.flights, path)
}

// ofLast reports whether a file of the flight recorder is of no earlier world than the others. It removes those of earlier ones.
func (s *judge) ofLast(b []byte) bool {
	g := -1 // no world of the job
	if d, err := flight.Decode(b); err == nil {
		if text, ok := strings.CutPrefix(d.Job, s.name+"."); ok {
			if n, err := strconv.Atoi(text); err == nil {
				g = n
			}
		}
	}
	if g > s.generation {
		for _, path := range s.flights {
			_ = os.Remove(path)
		}
		s.flights, s.generation = nil, g
	}
	return g == s.generation
}
