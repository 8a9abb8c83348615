//go:build unix

package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// statusLost is a job's status when a host is lost, which is ssh's when its connection is.
const statusLost = 255

const (
	reportLimit = 200 * time.Millisecond // for a failed rank's last output to come before the report
	answerLimit = time.Second            // for the other hosts to answer whether the job continues without one
	endLimit    = spawn.KillAfter + 3*time.Second
	flightLimit = 5 * time.Second
	sameRequest = 500 * time.Millisecond // signals this close together are one request (timeout(1) sends two)
)

// event is a frame from a host, or the end of its connection.
type event struct {
	h   *host
	k   kind
	b   []byte
	err error
}

// judge supervises the ranks. Its fields belong to its goroutine.
type judge struct {
	*job
	print  *printer
	events chan event
	broken chan error // the output cannot be written
	done   chan struct{}

	running   int          // ranks
	there     map[int]bool // the ranks that run
	ending    bool
	decided   bool // the job has a status
	blamed    bool // the status is a rank's
	status    int
	succeeded bool // a rank has ended with 0
	failed    int  // the status of the first loss after which the job continued, 0 for none
	goesOn    bool // an agent has reported that the job continues after losses
	asked     time.Time
	late      map[int]report // by rank: the message about its end
	losses    []string       // lost hosts for which it is not decided yet whether the job continues
	answers   int            // outstanding answers to that question

	winding bool // a rank or host has failed: the others have Config.Grace to end by themselves

	timeout, graceOver, kill, answered, reported <-chan time.Time
}

// report is a message that is printed after a rank's last output, or after reportLimit.
type report struct {
	text string
	by   time.Time
}

// see starts the ranks and returns the job's status at its end:
//
//  1. Until each host's ranks have ended, or the host is lost, it handles their reports.
//  2. The first failure, or another reason, ends the ranks of all hosts. A host that does not confirm this
//     within endLimit is given up.
//  3. The remaining hosts send the files of the flight recorder, if requested.
//  4. The last output is written.
func (j *job) see() int {
	j.begun = time.Now()
	s := &judge{
		job: j, events: make(chan event), broken: make(chan error, 1), done: make(chan struct{}),
		running: j.cfg.Ranks, there: map[int]bool{}, late: map[int]report{},
	}
	s.print = newPrinter(func(err error) { s.broken <- err })
	for rank := range j.cfg.Ranks {
		s.there[rank] = true
	}
	if j.cfg.Timeout > 0 {
		t := time.NewTimer(j.cfg.Timeout)
		defer t.Stop()
		s.timeout = t.C
	}
	for _, h := range j.hosts {
		h.link.send(kindGo)
	}
	input := newCredit(inputWindow)
	defer input.close()
	for _, h := range j.hosts {
		go s.read(h, input)
	}
	go spawn.Feed(j.cfg.Stdin, &inputWriter{j.hosts[0].link, input}, s.done)
	defer close(s.done)
	for !s.all(func(h *host) bool { return h.ended || h.lost }) {
		s.step(true)
	}
	s.goodbye()
	for rank := range s.late {
		s.report(rank)
	}
	s.print.close()
	for {
		select {
		case <-s.print.done:
			select {
			case err := <-s.broken:
				s.outputFailed(err)
			default:
			}
			return s.status
		case err := <-s.broken:
			s.outputFailed(err)
		case sig := <-j.cfg.Signals:
			if asksForEnd(sig) { // do not wait for the reader
				return s.status
			}
		}
	}
}

func (s *judge) all(is func(*host) bool) bool {
	for _, h := range s.hosts {
		if !is(h) {
			return false
		}
	}
	return true
}

// step handles the next event.
func (s *judge) step(signals bool) {
	var from <-chan os.Signal
	if signals {
		from = s.cfg.Signals
	}
	select {
	case e := <-s.events:
		s.handle(e)
	case sig := <-from:
		s.pass(sig)
	case err := <-s.broken:
		s.outputFailed(err)
	case <-s.timeout:
		s.end(spawn.StatusTimeout, fmt.Sprintf("the job did not end within %v (--timeout); ending its %s", s.cfg.Timeout, count(s.running, "rank")))
	case <-s.graceOver:
		s.terminate()
	case <-s.answered:
		s.resolveLosses(false)
	case <-s.reported:
		s.reported = nil
		for rank, r := range s.late {
			if !time.Now().Before(r.by) {
				s.report(rank)
			} else if s.reported == nil {
				s.reported = time.After(time.Until(r.by))
			}
		}
	case <-s.kill:
		s.kill = nil
		for _, h := range s.hosts {
			if !h.ended && !h.lost {
				s.say(fmt.Sprintf("host %s has not confirmed that its ranks have ended; giving it up", h.Name))
				h.shell.kill()
			}
		}
	}
}

// read passes a host's frames on until its connection ends.
func (s *judge) read(h *host, input *credit) {
	for {
		k, b, err := h.next()
		switch {
		case err != nil:
		case k == kindAck:
			if n, err := number(b); err == nil {
				input.give(int(n))
			}
			continue
		case k == kindOutput:
			if len(b) > 0 {
				w := s.cfg.Stdout
				if b[0] == 2 {
					w = s.cfg.Stderr
				}
				s.print.add(w, b[1:], func() { h.link.send(kindAck, numberBytes(len(b)-1)) })
			}
			continue
		}
		select {
		case s.events <- event{h, k, b, err}:
		case <-s.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// handle handles a frame from a host.
func (s *judge) handle(e event) {
	h := e.h
	if e.err != nil {
		h.done = true
		if !h.lost && !h.ended {
			s.lose(h, e.err)
		}
		return
	}
	switch e.k {
	case kindExit:
		if x, err := decode[rankExit](e.b, "the end of a rank"); err == nil && s.there[x.Rank] && x.Rank >= h.first && x.Rank < h.first+h.count {
			s.exited(h, x)
		}
	case kindDrained:
		if n, err := number(e.b); err == nil {
			s.report(int(n))
		}
	case kindLog:
		s.say(h.Name + ": " + string(e.b))
	case kindFault:
		s.end(2, fmt.Sprintf("host %s: %s", h.Name, e.b))
		s.lostRanks(h)
		h.ended = true
	case kindAnswer:
		s.answers--
		if yes := len(e.b) == 1 && e.b[0] == 1; yes || s.answers == 0 {
			s.resolveLosses(yes)
		}
	case kindEnded:
		h.ended = true
	case kindFlight:
		s.keepFlight(h, e.b)
	case kindDone:
		h.done = true
	}
}

// exited handles the end of a rank as internal/spawn does.
func (s *judge) exited(h *host, x rankExit) {
	if x.GoesOn && len(s.losses) > 0 { // this also answers whether the job continues after these losses
		s.resolveLosses(true)
	}
	delete(s.there, x.Rank)
	s.running--
	s.goesOn = s.goesOn || x.GoesOn
	if x.Status == 0 {
		s.succeeded = true
		return
	}
	text := fmt.Sprintf("rank %d on %s %s after %s", x.Rank, h.Name, x.How, x.After)
	aborted := x.Aborted && (!s.decided || s.blamed) // other ranks may have ended first because of the Abort
	switch {
	case x.GoesOn && !x.Aborted && !s.winding && !s.ending && s.asked.IsZero():
		text = s.goOn(text, x.Status, false)
	case s.decided && !aborted:
		return
	default:
		s.decided, s.blamed, s.status = true, true, x.Status
		if s.running > 0 {
			text += "; ending the others"
		}
		s.windDown()
	}
	// The message comes after the rank's last output.
	s.late[x.Rank] = report{text, time.Now().Add(reportLimit)}
	if s.reported == nil {
		s.reported = time.After(reportLimit)
	}
}

// goOn records a loss after which the job continues. A loss before any rank has succeeded gives the job its
// status only if no rank succeeds. A rank that fails later gives the job its status. The loss of a host is
// detected late, when other ranks may have ended because of it: it always counts as the first case.
func (s *judge) goOn(text string, status int, host bool) string {
	if s.failed == 0 {
		s.failed = status
	}
	switch {
	case s.running > 0:
		text += "; the job goes on with " + count(s.running, "rank")
	case !s.succeeded:
		text += "; no rank is left"
	}
	switch {
	case s.decided:
	case s.succeeded && !host:
		s.decided, s.status = true, status
	case !s.succeeded && s.running == 0:
		s.decided, s.status = true, s.failed
	}
	return text
}

// lose handles the loss of a host and its ranks.
func (s *judge) lose(h *host, err error) {
	h.lost = true
	ranks := s.lostRanks(h)
	why := strings.Join(strings.Fields(h.explain(context.Background(), err).Error()), " ")
	text := fmt.Sprintf("host %s was lost after %s (%s)", h.Name, seconds(time.Since(s.begun)), why)
	if ranks == "" {
		s.say(text)
		return
	}
	text += ", and " + ranks + " with it"
	switch {
	case s.decided || s.ending:
		s.say(text)
	case !s.asked.IsZero():
		s.end(statusLost, text)
	case s.cfg.Resilient || s.goesOn:
		s.say(s.goOn(text, statusLost, true))
	default: // ask the other hosts whether the program continues
		s.losses = append(s.losses, text)
		s.answers = 0
		for _, other := range s.hosts {
			if !other.lost && !other.ended {
				s.answers++
				other.link.send(kindAsk)
			}
		}
		s.answered = time.After(answerLimit)
		if s.answers == 0 {
			s.resolveLosses(false)
		}
	}
}

// resolveLosses decides what follows from the loss of hosts.
func (s *judge) resolveLosses(goesOn bool) {
	losses := s.losses
	s.losses, s.answered, s.answers = nil, nil, 0
	s.goesOn = s.goesOn || goesOn
	for _, text := range losses {
		switch {
		case s.ending:
			s.say(text)
		case goesOn:
			s.say(s.goOn(text, statusLost, true))
		default:
			if s.running > 0 {
				text += "; ending the others"
			}
			if !s.decided {
				s.decided, s.status = true, statusLost
			}
			s.say(text)
			s.windDown()
		}
	}
}

// lostRanks removes the ranks of a host that still run, and names them.
func (s *judge) lostRanks(h *host) string {
	var names []string
	for rank := h.first; rank < h.first+h.count; rank++ {
		if s.there[rank] {
			delete(s.there, rank)
			s.running--
			names = append(names, fmt.Sprint(rank))
		}
	}
	switch n := len(names); {
	case n == 0:
		return ""
	case n > 8:
		return fmt.Sprintf("%d ranks from %s to %s", n, names[0], names[n-1])
	case n == 1:
		return "rank " + names[0]
	}
	return "ranks " + strings.Join(names, ", ")
}

// end ends the job for a reason other than a rank's failure.
func (s *judge) end(status int, text string) {
	if s.ending {
		return
	}
	if !s.decided {
		s.decided, s.status = true, status
	}
	if text != "" {
		s.say(text)
	}
	s.terminate()
}

// windDown gives the ranks Config.Grace to end by themselves before they are terminated.
func (s *judge) windDown() {
	switch {
	case s.cfg.Grace <= 0:
		s.terminate()
	case !s.winding:
		s.graceOver = time.After(s.cfg.Grace)
	}
	s.winding = true
}

// terminate makes all hosts end their ranks: SIGTERM, and SIGKILL after spawn.KillAfter.
func (s *judge) terminate() {
	if s.ending {
		return
	}
	s.ending, s.timeout, s.graceOver = true, nil, nil
	s.kill = time.After(endLimit)
	for _, h := range s.hosts {
		h.link.send(kindEnd)
	}
}

func (s *judge) outputFailed(err error) {
	if errors.Is(err, syscall.EPIPE) {
		s.end(128+int(syscall.SIGPIPE), "") // the reader closed the pipe, as head does: print nothing
		return
	}
	s.end(1, fmt.Sprintf("the ranks' output cannot be written (%v)", err))
}

// pass passes a signal on to all ranks. A second request to end begins the end of the job, however the ranks handle it.
func (s *judge) pass(sig os.Signal) {
	n, ok := sig.(syscall.Signal)
	if !ok || n == syscall.SIGPIPE { // the failed write is reported instead
		return
	}
	for _, h := range s.hosts {
		h.link.send(kindSignal, []byte{byte(n)})
	}
	switch {
	case n == syscall.SIGTSTP:
		for _, h := range s.hosts { // the agents must receive it before this process stops sending
			h.link.flush(reportLimit)
		}
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case !asksForEnd(n):
	case s.asked.IsZero():
		s.asked = time.Now()
	case time.Since(s.asked) > sameRequest:
		s.end(128+int(n), "second request to end: ending the ranks")
	}
}

// goodbye lets the hosts send the files of the flight recorder if they are needed, and waits for that.
func (s *judge) goodbye() {
	want := byte(0)
	if s.cfg.Flight != "" && (s.status != 0 || s.cfg.KeepFlight) {
		want = 1
	}
	for _, h := range s.hosts {
		h.link.send(kindBye, []byte{want})
	}
	s.timeout, s.answered = nil, nil
	limit := time.AfterFunc(flightLimit, func() {
		for _, h := range s.hosts {
			h.shell.kill()
		}
	})
	defer limit.Stop()
	for !s.all(func(h *host) bool { return h.done }) {
		s.step(false)
	}
}

// keepFlight stores a file of the flight recorder.
func (s *judge) keepFlight(h *host, b []byte) {
	if len(b) < 4 || s.cfg.Flight == "" {
		return
	}
	n, _ := number(b[:4])
	if rank := int(n); rank >= h.first && rank < h.first+h.count {
		if err := flight.WriteFile(filepath.Join(s.cfg.Flight, flight.FileName(rank)), b[4:]); err != nil {
			s.say(fmt.Sprintf("writing the flight recorder's files: %v", err))
		}
	}
}
