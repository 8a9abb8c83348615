package job

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

const (
	// StatusTimeout is the status of a job that exceeded its timeout, as in timeout(1).
	StatusTimeout = 124
	// StatusLost is a job's status when a host is lost, which is ssh's when its connection is.
	StatusLost = 255

	answerLimit = time.Second            // for the hosts to answer whether the job continues after losses
	followLimit = 2 * time.Second        // for the failure to come after which others have failed, before the grace time begins
	sameRequest = 500 * time.Millisecond // signals this close together are one request (timeout(1) sends two)
)

// Config describes a job, and how a [Machine] reaches its ranks. Functions must not call the machine.
type Config struct {
	Now         func() time.Time
	Ranks       int
	Resilient   bool          // the job continues after losses; else a rank may ask for that (Exit.GoesOn, Answer)
	Timeout     time.Duration // of the job; 0: none
	Grace       time.Duration // for the others to end by themselves when a rank has failed
	KillAfter   time.Duration // from Terminate to Kill
	GiveUpAfter time.Duration // from Kill to GiveUp

	Say       func(text string, after <-chan struct{}) // prints a message once after is closed; nil for at once
	Terminate func()                                   // asks all remaining processes to end
	Kill      func()                                   // ends those that Terminate did not end
	GiveUp    func()                                   // leaves those that Kill did not end; may be nil
	Ask       func() int                               // asks the hosts that are left for an Answer, and returns their number; nil on one machine
}

// Result is how a job ended.
type Result struct {
	Status  int   // 0, or the status of the first rank that failed: its own, or 128 + its signal
	First   int   // that rank, -1 if none failed
	Err     error // a failure that no rank caused, such as a timeout or output that cannot be written
	Aborted bool  // First called Abort, and a message has said so
}

// Exit is the end of a rank.
type Exit struct {
	Rank     int             // -1 for a host's ranks
	ID       int             // of the process: its rank, or where lost ranks are replaced, its number for generation.Machine
	Name     string          `json:"-"` // for messages: "rank 3", "rank 3 on a"
	Status   int             // its own, or 128 + the signal that killed it
	How      string          // "exited with status 3"
	After    string          // how long the job had run: "1.2 s"
	Open     bool            // it exited with status 0 without closing its world
	GoesOn   bool            // the job continues without it; false: as far as the rank's host knows, it does not
	Aborted  bool            // it called Abort
	Outlived bool            // it was stopped, and killed because all others had ended: its end decides nothing
	Follows  bool            // it failed, or called Abort, because another rank had failed
	reacted  bool            // it called Abort because another rank had failed, even if the job continued after that
	Drained  <-chan struct{} `json:"-"` // closed when its output has been passed on
}

// Phase says how far the end of a job is.
//
//	from              event                                          to
//	Runs              a failure or a loss ends the job; WindDown     WindsDown, or Ends without a grace time
//	Runs, WindsDown   the grace time is over; End                    Ends: Terminate, and Kill after KillAfter
//	any               Abandon                                        Ends: Kill
type Phase byte

const (
	Runs      Phase = iota // it has not begun
	WindsDown              // the ranks may end by themselves
	Ends                   // they are being terminated or killed
)

// Machine is the state of a job. Its methods handle events. They are called by one goroutine.
type Machine struct {
	Config
	Result
	Phase
	Running   int            // ranks that have not ended; kept by the owner
	Decided   bool           // Result is final, but for an Abort that caused an earlier end
	Succeeded bool           // a rank has ended with status 0
	Lost      *Exit          // the first loss after which the job continued
	Began     time.Time      // when Runs ended
	Request   syscall.Signal // the signal by which the user first asked for the end

	reacted bool      // First called Abort because another rank had failed
	first   *Exit     // the first rank that failed because another one had, which is to come
	asked   time.Time // when Request came
	losses  []loss    // those for which it is not decided yet whether the job continues, and what came later
	behind  int       // how many of those that are being decided come after the present one
	answers int       // to all calls of Ask that have not come; those of lost hosts never come
	due     [limits]time.Time
}

// A loss is that of a rank, or of a host.
type loss struct {
	Exit // of a host: that of rank -1
	text string
	late bool // a rank had succeeded before
	ends bool // it ends the job, whatever the hosts answer: it is an Abort, or the job was ending or had been asked to end
}

// The limits of time for which a machine waits.
const (
	timeout = iota
	grace
	kill
	giveUp
	answer
	follow
	limits
)

// New returns the machine of a job whose ranks run.
func New(c Config) *Machine {
	m := &Machine{Config: c, Result: Result{First: -1}, Running: c.Ranks}
	if c.Timeout > 0 {
		m.after(timeout, c.Timeout)
	}
	return m
}

func (m *Machine) after(limit int, d time.Duration) { m.due[limit] = m.Now().Add(d) }

// Wait returns a channel that receives when Tick is to be called. It is nil if no limit is waited for.
func (m *Machine) Wait() <-chan time.Time {
	var next time.Time
	for _, at := range m.due {
		if next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(next.Sub(m.Now()))
}

// Tick handles the limits that have been reached.
func (m *Machine) Tick() {
	now := m.Now()
	for limit, at := range m.due {
		if at.IsZero() || now.Before(at) {
			continue
		}
		m.due[limit] = time.Time{}
		switch limit {
		case timeout:
			if m.Running == 0 { // only processes that ranks left, or another launcher, still run
				m.terminate()
				continue
			}
			err := fmt.Errorf("the job did not end within %v", m.Timeout)
			m.End(StatusTimeout, err, fmt.Sprintf("%v (--timeout); ending its %s", err, Count(m.Running, "rank")))
		case grace:
			m.terminate()
		case kill:
			m.kill()
		case giveUp:
			m.GiveUp()
		case answer:
			m.resolve(false)
		case follow:
			m.WindDown()
		}
	}
}

// Ended handles the end of a rank that no longer counts as Running. After an Abort, the job's status is that
// of the rank that called it, even if another one has ended before because of it. A rank that failed because
// another one had waits for the end of that one. An Abort ends a job that continues after losses even if its
// rank called it because of a loss.
func (m *Machine) Ended(e Exit) {
	e.reacted = e.Aborted && e.Follows
	switch {
	case e.Outlived:
	case e.Status == 0:
		m.Succeeded = true
	default:
		m.take(loss{e, e.text(), m.Succeeded, m.Phase != Runs || m.Request != 0 || e.Aborted && !e.Follows})
	}
	if m.Running == 0 {
		m.blameFirst()
	}
}

// Judge makes the end of a rank a failure if it exited with status 0 without closing its world, and nobody has asked the job to end.
func (m *Machine) Judge(e *Exit) {
	if e.Open && m.Request == 0 {
		e.Status, e.How = 1, "exited with status 0 without closing its world (Close)"
	}
}

// take decides whether the job continues after a loss. If that is not known, it asks the hosts that are left. A loss that comes
// after one that is not decided is decided after it.
func (m *Machine) take(l loss) {
	known := l.ends || m.Resilient || l.GoesOn || m.Ask == nil
	if known && len(m.losses) == 0 {
		m.decideLoss(l, m.Resilient || l.GoesOn)
		return
	}
	if m.losses = append(m.losses, l); known {
		return
	}
	m.Inquire()
	m.after(answer, answerLimit)
	if m.answers == 0 {
		m.resolve(false)
	}
}

func (m *Machine) decideLoss(l loss, goesOn bool) {
	switch {
	case l.ends && l.Rank >= 0:
		m.fail(l.Exit)
	case l.ends && m.Phase != Ends && !m.Decided:
		m.End(StatusLost, nil, l.text)
	case goesOn && m.Phase == Runs && !l.Aborted && !l.ends:
		m.goOn(l)
	case l.Rank >= 0:
		l.Follows = l.Follows && !(l.Aborted && goesOn)
		m.fail(l.Exit)
	case m.Phase == Ends || l.ends:
		m.Say(l.text, nil)
	default:
		if !m.Decided {
			m.decide(l.Exit, nil)
		}
		m.Say(m.others(l.text), nil)
		m.WindDown()
	}
}

// fail handles the failure of a rank after which the job does not continue. A reaction to an Abort may come before that.
func (m *Machine) fail(e Exit) {
	switch {
	case e.Follows && !m.Decided:
		if m.first == nil {
			m.first = &e
			m.after(follow, followLimit)
		}
	case !m.Decided, e.Aborted && !e.Follows && m.First >= 0 && (!m.Aborted || m.reacted && !e.reacted): // the status is a rank's
		m.blame(e)
	}
}

func (e *Exit) text() string { return fmt.Sprintf("%s %s after %s", e.Name, e.How, e.After) }

// blame gives the job the status of a rank.
func (m *Machine) blame(e Exit) {
	m.decide(e, nil)
	m.Say(m.others(e.text()), e.Drained)
	m.WindDown()
}

// blameFirst blames the first rank that failed because another one had, if that one has not come when
// all have ended or are terminated.
func (m *Machine) blameFirst() {
	if m.first != nil && !m.Decided && len(m.losses) == 0 {
		m.blame(*m.first)
	}
}

func (m *Machine) decide(e Exit, err error) {
	m.Decided, m.reacted = true, e.reacted
	m.Result = Result{Status: e.Status, First: e.Rank, Err: err, Aborted: e.Aborted}
}

func (m *Machine) others(text string) string {
	if m.Running > 0 {
		text += "; ending the others"
	}
	return text
}

// goOn continues the job after a loss. A loss before any rank has succeeded gives the job its status only if no
// rank succeeds. A rank that fails later gives the job its status. The loss of a host is detected late, when
// other ranks may have ended because of it: it always counts as the first case.
func (m *Machine) goOn(l loss) {
	if m.Lost == nil {
		m.Lost = &l.Exit
	}
	switch {
	case m.Running > 0:
		l.text += "; the job goes on with " + Count(m.Running, "rank")
	case !m.Succeeded && m.behind == 0:
		l.text += "; no rank is left"
	}
	switch {
	case m.Decided:
	case l.late:
		m.decide(l.Exit, nil)
	case !m.Succeeded && m.Running+m.behind == 0:
		m.decide(*m.Lost, nil)
	}
	m.Say(l.text, l.Drained)
}

// HostLost handles the loss of a host with ranks that no longer count as Running.
func (m *Machine) HostLost(text string) {
	switch {
	case m.Decided || m.Phase == Ends:
		m.Say(text, nil)
	default:
		m.take(loss{Exit: Exit{Rank: -1, Status: StatusLost}, text: text, ends: m.Request != 0})
	}
}

// Inquire asks the hosts that are left whether the job continues after losses, if that is not known. Resilient is set when one
// answers that it does.
func (m *Machine) Inquire() {
	if !m.Resilient {
		m.answers += m.Ask()
	}
}

// Answer handles a host's answer to Ask: whether the job continues after losses.
func (m *Machine) Answer(goesOn bool) {
	if m.answers--; goesOn {
		m.Continue()
	} else if m.answers == 0 {
		m.resolve(false)
	}
}

// Continue makes the job continue after losses, because a rank has requested that. The hosts are not asked any more.
func (m *Machine) Continue() { m.resolve(true) }

// resolve decides what follows from the losses so far. Before the job ends for another reason, that is done without the answers.
func (m *Machine) resolve(goesOn bool) {
	losses := m.losses
	m.losses, m.due[answer] = nil, time.Time{}
	m.Resilient = m.Resilient || goesOn
	for i, l := range losses {
		m.behind = len(losses) - 1 - i
		m.decideLoss(l, goesOn || l.GoesOn)
	}
	if m.Running == 0 || m.Phase == Ends {
		m.blameFirst()
	}
}

// Signal handles a signal that has been passed on to the ranks. A second request to end begins the end of the
// job, however the ranks handle it.
func (m *Machine) Signal(n syscall.Signal) {
	switch {
	case !AsksForEnd(n):
	case m.Request == 0:
		m.Request, m.asked = n, m.Now()
	case m.Now().Sub(m.asked) > sameRequest:
		m.End(128+int(n), fmt.Errorf("asked twice to end (%v)", n), "second request to end: ending the ranks")
	}
}

// OutputFailed handles ranks' output that cannot be written.
func (m *Machine) OutputFailed(err error) {
	status, text := 1, fmt.Sprintf("the ranks' output cannot be written (%v)", err)
	if errors.Is(err, syscall.EPIPE) {
		status, text = 128+int(syscall.SIGPIPE), "" // the reader closed the pipe, as head does: print nothing
	}
	m.End(status, fmt.Errorf("writing the ranks' output: %w", err), text)
}

// LostOutput handles a signal by which the user ends the wait for the last output to be written. Nothing runs any more.
func (m *Machine) LostOutput(n syscall.Signal) {
	m.Stop()
	if !m.Decided && m.Status == 0 {
		m.decide(Exit{Rank: -1, Status: 128 + int(n)}, fmt.Errorf("asked to end (%v) before the last output was written", n))
	}
}

// End ends the job for a reason other than a rank's failure. An empty text prints no message.
func (m *Machine) End(status int, err error, text string) {
	if len(m.losses) > 0 {
		m.resolve(false)
	}
	if m.Phase == Ends {
		return
	}
	if !m.Decided {
		m.decide(Exit{Rank: -1, Status: status}, err)
	}
	if text != "" {
		m.Say(text, nil)
	}
	m.terminate()
}

// Abandon kills the ranks: because one could not be started, which err says, or because nobody needs them any more.
func (m *Machine) Abandon(err error) {
	m.decide(Exit{Rank: -1, Status: 1}, err)
	m.begin(Ends)
	m.kill()
}

// WindDown gives the ranks Config.Grace to end by themselves before they are terminated.
func (m *Machine) WindDown() {
	if len(m.losses) > 0 {
		m.resolve(false)
	}
	switch {
	case m.Grace <= 0:
		m.terminate()
	case m.Phase == Runs:
		m.begin(WindsDown)
		m.after(grace, m.Grace)
	}
}

func (m *Machine) terminate() {
	if m.Phase == Ends {
		return
	}
	m.begin(Ends)
	m.blameFirst()
	m.after(kill, m.KillAfter)
	m.Terminate()
}

func (m *Machine) begin(p Phase) {
	if m.Phase == Runs {
		m.Began = m.Now()
	}
	if m.Phase = p; p == Ends {
		m.due[timeout], m.due[grace] = time.Time{}, time.Time{}
	}
}

func (m *Machine) kill() {
	if m.GiveUp != nil {
		m.after(giveUp, m.GiveUpAfter)
	}
	m.Kill()
}

// Stop decides what has not been decided, because nothing more happens.
func (m *Machine) Stop() { m.resolve(false) }
