//go:build unix

package remote

import (
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/spawn"
	"github.com/cohort-hpc/cohort/topo"
)

const (
	pingEvery = spawn.BeatEvery
	// silence is the number of intervals pingEvery without a message after which the other end is gone.
	silence = 30
	// outputWindow and inputWindow are how many bytes may be on their way.
	outputWindow = 1 << 20
	inputWindow  = 256 << 10
	// leastCharge is the minimum that a message of input takes of the window, which limits the number of messages.
	leastCharge = 4 << 10
	// partingLimit is how long an agent may still run after its launcher is gone.
	partingLimit = 4 * time.Second
)

// charge returns how many bytes a message of input takes of its window.
func charge(b []byte) int { return max(len(b), leastCharge) }

// agent is the ranks of one host.
type agent struct {
	link   *link
	keeper *spawn.Keeper
	work   work
	ranks  spawn.Programs // with their paths here
	folder string         // for programs, the secret, and the file by which ranks request that the job continues
	flight string         // the folder for the files of the flight recorder; empty for none
	window *credit
	input  *os.File // to rank 0, nil if it is on another host
	job    *spawn.Job

	quiet  atomic.Int32  // intervals pingEvery without a message from the launcher
	paused atomic.Bool   // the launcher is stopped, and sends nothing
	goesOn bool          // the launcher knows that a rank has requested that the job continues; owned by beat
	gone   chan struct{} // closed when the launcher is gone or this process was asked to end: the host is lost
	why    string        // the reason; written before gone is closed
	once   sync.Once
	bye    chan bool
}

// Agent is the main function of the process at a host's end of ssh. It communicates with the launcher over in
// and out, and returns the exit status. boot is the folder into which the executable was copied, "-" for none.
func Agent(in, out *os.File, boot, version string) int {
	if info, err := in.Stat(); err != nil || info.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprintln(os.Stderr, "cohort: this command is for cohort run --hosts, which starts it on other hosts")
		return 2
	}
	fmt.Fprintln(out, agentLine)
	a := &agent{
		link: newLink(out), window: newCredit(outputWindow),
		gone: make(chan struct{}), bye: make(chan bool, 1),
	}
	own := make(chan os.Signal, 8)
	signal.Notify(own, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	go func() {
		for s := range own {
			if s != syscall.SIGPIPE { // the failed write is reported instead
				a.lost(fmt.Sprintf("the agent was asked to end (%v)", s))
			}
		}
	}()
	go func() {
		<-a.link.done // closed at the end, or because a write failed
		a.lost(disconnected)
	}()
	err := a.prepare(gob.NewDecoder(in), boot, version)
	if err == nil {
		err = a.run()
	}
	defer a.keeper.Close()
	switch {
	case err == nil:
	case a.isGone(): // the launcher reports the loss, with this reason if it still gets it
		fmt.Fprintln(os.Stderr, a.why)
	default:
		a.link.text(kindFault, err.Error())
	}
	if a.folder != "" {
		os.RemoveAll(a.folder)
	}
	if a.flight != "" {
		os.RemoveAll(a.flight)
	}
	a.link.close()
	a.wait(a.link.done)
	if err != nil {
		return 1
	}
	return 0
}

// prepare does everything before the ranks start:
//
//  1. It starts a keeper, which outlives a killed agent, and creates a folder.
//  2. It sends hello, and receives the work.
//  3. It finds the programs on this host, or receives them.
//  4. It reports that it is ready, and waits for the launcher to start the ranks.
func (a *agent) prepare(in *gob.Decoder, boot, version string) (err error) {
	a.keeper, err = spawn.StartKeeper()
	if boot != "-" {
		// This process and the keeper no longer need the file. No other file is removed.
		_ = os.Remove(filepath.Join(boot, "cohort"))
		_ = os.Remove(boot)
	}
	if err != nil {
		return err
	}
	if a.folder, err = os.MkdirTemp("", "cohort-run-*"); err != nil { // for this user alone
		return fmt.Errorf("create a folder for the job: %w; TMPDIR names another place", err)
	}
	a.keeper.Folder(a.folder)
	node, err := topo.Here()
	if err != nil {
		return err
	}
	a.link.send(message{Kind: kindHello, Hello: &hello{
		Protocol: protocol, Version: version, Connection: cmp.Or(os.Getenv("SSH_CONNECTION"), os.Getenv("SLURM_LAUNCH_NODE_IPADDR")), Usable: node.Usable(),
	}})
	go a.beat()
	m, err := a.next(in, kindWork)
	if err != nil {
		return err
	}
	if m.Work == nil {
		return errors.New("the launcher sent no work")
	}
	a.work = *m.Work
	note, err := a.enter()
	if err != nil {
		return err
	}
	copies := map[string]string{}
	for _, p := range a.work.Programs {
		path, err := a.program(in, p, copies)
		if err != nil {
			return err
		}
		a.ranks = append(a.ranks, spawn.Program{Path: path, Args: p.Args, Ranks: p.Ranks})
	}
	if n := a.ranks.Ranks(); n < 1 && a.work.Most == 0 || n > spawn.MaxRanks || a.work.First < 0 || a.work.First+n > a.work.Size {
		return fmt.Errorf("ranks from %d, %d of %d: one host has 1 to %d", a.work.First, n, a.work.Size, spawn.MaxRanks)
	}
	config, err := a.config(node)
	if err != nil {
		return err
	}
	a.link.text(kindReady, note)
	if _, err = a.next(in, kindGo); err != nil {
		return err
	}
	if config.Stdin != nil {
		defer config.Stdin.Close()
	}
	if a.job, err = spawn.Start(config); err != nil {
		return err
	}
	go a.listen(in)
	return nil
}

// next reads a message of the only kind expected now.
func (a *agent) next(in *gob.Decoder, want kind) (message, error) {
	for {
		var m message
		err := in.Decode(&m)
		a.quiet.Store(0)
		switch {
		case err != nil:
			return m, fmt.Errorf("the launcher is gone: %w", err)
		case m.Kind == want:
			return m, nil
		case m.Kind == kindEnd, m.Kind == kindBye:
			return m, errors.New("the launcher has canceled the job")
		case m.Kind != kindPing && m.Kind != kindSignal:
			return m, fmt.Errorf("the launcher sent a message of kind %q, want %q", byte(m.Kind), byte(want))
		}
	}
}

// enter changes to the launcher's folder if it exists here, or else to the home folder.
func (a *agent) enter() (note string, err error) {
	folder := a.work.Folder
	if err = os.Chdir(folder); err == nil {
		return "", os.Setenv("PWD", folder)
	}
	home, e := os.UserHomeDir()
	if e == nil {
		e = os.Chdir(home)
	}
	if e != nil {
		home, e = "/", os.Chdir("/")
	}
	if e != nil {
		return "", e
	}
	return fmt.Sprintf("no folder %s (%v); the ranks run in %s", folder, errors.Unwrap(err), home), os.Setenv("PWD", home)
}

// config returns how the ranks are started.
func (a *agent) config(node *topo.Node) (spawn.Config, error) {
	w := &a.work
	c := spawn.Config{
		Programs: a.ranks, Backend: "tcp", Job: w.Job, Tag: w.Tag,
		Stdout: &output{a, message{Kind: kindOutput}}, Stderr: &output{a, message{Kind: kindOutput, N: 1}}, Keeper: a.keeper,
		Folder: a.folder, Show: w.Show,
		Part: &spawn.Part{
			First: w.First, Size: w.Size, Ended: a.ended, Log: func(text string) { a.link.text(kindLog, text) },
			Stopped: func(only bool) { a.link.send(message{Kind: kindStopped, Yes: only}) },
			Drains:  func() { a.link.say(kindDrains) },
		},
	}
	if w.Most > 0 {
		c.Part.Relay = func(id int, r generation.Request) { a.link.send(message{Kind: kindRequest, ID: id, Request: &r}) }
	}
	if w.Copy {
		c.Copy = func(rank, stream int) io.Writer { return &output{a, message{Kind: kindCopy, ID: rank, N: stream}} }
	}
	var err error
	if c.Places, err = spawn.Place(node, w.Bind, max(a.ranks.Ranks(), 1)); err != nil {
		return c, err
	}
	set := append(w.Env, "COHORT_RUN_DIR="+a.folder)
	if w.Secret != "" {
		secret := filepath.Join(a.folder, "secret")
		if err := os.WriteFile(secret, []byte(w.Secret), 0o600); err != nil {
			return c, fmt.Errorf("write the job's secret: %w", err)
		}
		set = append(set, "COHORT_SECRET_FILE="+secret)
	}
	if w.Flight {
		if a.flight, err = os.MkdirTemp("/dev/shm", "cohort-flight-*"); err != nil {
			a.flight, err = os.MkdirTemp("", "cohort-flight-*")
		}
		if err != nil {
			return c, err
		}
		a.keeper.Folder(a.flight)
		set = append(set, flight.EnvDir+"="+a.flight, flight.EnvKept+"=") // not kept on this host
	}
	c.Env = append(os.Environ(), set...) // of variables with the same name the last counts
	if w.First == 0 {
		if c.Stdin, a.input, err = os.Pipe(); err != nil {
			return c, err
		}
	}
	return c, nil
}

// ended reports to the launcher how a rank ended. If the host is lost, its ranks count as failed however they end.
func (a *agent) ended(e job.Exit) {
	if a.isGone() {
		return
	}
	a.link.send(message{Kind: kindExit, Exit: &e})
	go func() {
		<-e.Drained
		a.link.send(message{Kind: kindDrained, ID: e.ID})
	}()
}

// run waits for the ranks, and then for the launcher's goodbye.
func (a *agent) run() error {
	over := make(chan struct{})
	go func() {
		a.job.Wait()
		close(over)
	}()
	if a.wait(over); a.isGone() {
		return errors.New(a.why)
	}
	a.link.say(kindEnded)
	select {
	case <-a.gone:
		return errors.New(a.why)
	case send := <-a.bye:
		first, end := a.work.First, a.work.First+a.ranks.Ranks()
		if a.work.Most > 0 {
			first, end = 0, a.work.Most
		}
		for rank := first; send && a.flight != "" && rank < end; rank++ {
			if b, err := os.ReadFile(filepath.Join(a.flight, flight.FileName(rank))); err == nil {
				a.link.deliver(message{Kind: kindFlight, ID: rank, Data: b}, nil)
			}
		}
		a.link.say(kindDone)
	}
	return nil
}

// wait waits until c is closed, for at most partingLimit once the host is lost.
func (a *agent) wait(c <-chan struct{}) {
	select {
	case <-c:
		return
	case <-a.gone:
	}
	select {
	case <-c:
	case <-time.After(partingLimit):
	}
}

// disconnected is a reason for lost.
const disconnected = "the connection to the launcher has ended"

// lost gives up this host for a reason: the ranks are killed, and none of them is reported any more. If ending them takes too long,
// the process exits, and the keeper ends the ranks.
func (a *agent) lost(why string) {
	a.once.Do(func() {
		a.why = why
		a.window.close()
		close(a.gone)
		time.AfterFunc(2*partingLimit, func() { os.Exit(1) })
	})
}

func (a *agent) isGone() bool {
	select {
	case <-a.gone:
		return true
	default:
		return false
	}
}

// report tells the launcher once that a rank has requested that the job continues after losses. The host may be among these.
func (a *agent) report() {
	if !a.goesOn && spawn.ResilientIn(a.folder) {
		a.goesOn = true
		a.link.say(kindGoesOn)
	}
}

// beat sends pings to the launcher, and checks that messages arrive from it.
func (a *agent) beat() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for range tick.C {
		a.link.say(kindPing)
		a.keeper.Beat(silence) // if this process is stopped, the launcher gives up the host after that time
		a.report()
		if !a.paused.Load() && a.quiet.Add(1) > silence {
			a.lost(fmt.Sprintf("no message from the launcher for %v", silence*pingEvery))
			return
		}
	}
}

// listen executes the launcher's commands while ranks run.
func (a *agent) listen(in *gob.Decoder) {
	go func() {
		<-a.gone
		a.job.Abandon() // other processes may run in place of the ranks by now, and save what these would overwrite
	}()
	feeding := a.feed()
	for {
		var m message
		if in.Decode(&m) != nil {
			break
		}
		a.quiet.Store(0)
		a.handle(m, feeding)
	}
	a.lost(disconnected)
	close(feeding)
}

// handle executes one command of the launcher.
func (a *agent) handle(m message, feeding chan<- []byte) {
	switch m.Kind {
	case kindSignal:
		s := syscall.Signal(m.N)
		a.paused.Store(s == syscall.SIGTSTP) // until another signal comes: other messages may have been on their way
		a.job.Signal(s)
	case kindInput:
		feeding <- m.Data
	case kindAck:
		a.window.give(m.N)
	case kindEnd:
		a.job.Stop()
	case kindAsk:
		a.link.send(message{Kind: kindAnswer, Yes: spawn.ResilientIn(a.folder)})
	case kindNote:
		a.job.NoteStopped()
	case kindAlone:
		a.job.EndStopped()
	case kindStart:
		a.job.Launch(m.ID, m.N)
	case kindTell:
		if m.Tell != nil {
			a.job.Tell(m.ID, *m.Tell)
		}
	case kindKill:
		a.job.Kill(m.ID)
	case kindLast:
		a.job.Release()
	case kindBye:
		select {
		case a.bye <- m.Yes:
		default:
		}
	}
}

// feed returns the channel for rank 0's input. The window ensures that a send on it does not block.
func (a *agent) feed() chan<- []byte {
	c := make(chan []byte, 2*inputWindow/leastCharge)
	go func() {
		open := a.input != nil
		for b := range c {
			if open && len(b) > 0 {
				_, err := a.input.Write(b)
				open = err == nil // an error means that the rank has ended or closed its input
			}
			if a.input != nil && (!open || len(b) == 0) {
				a.input.Close()
				open = false
			}
			a.link.send(message{Kind: kindAck, N: charge(b)})
		}
		if open {
			a.input.Close()
		}
	}()
	return c
}
