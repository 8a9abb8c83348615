//go:build unix

package spawn

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

const (
	lingerLimit = time.Second           // for processes that a rank left to end by themselves
	drainLimit  = time.Second           // for more data from a pipe once all ranks have ended
	pipeMost    = 1 << 20               // bytes in a pipe that a program has enlarged
	sweepEvery  = 10 * time.Millisecond // between checks of the processes that ranks left
	stuckLimit  = 5 * time.Second       // after SIGKILL until a rank is given up as stuck in the kernel
)

// Job is a set of ranks that have been started. Its methods are safe for
// concurrent use.
type Job struct {
	cfg    Config
	begun  time.Time
	out    *output
	ranks  []*rank
	ended  chan exit
	done   chan struct{}
	result job.Result

	mu    sync.Mutex
	queue []func(*state) // what others have the job's goroutine do, in this order
	wake  chan struct{}  // with room for one: the queue is not empty

	watch    *watch         // of the ranks; nil if not supported
	feeding  sync.WaitGroup // passes on the terminal's input
	oomKills int64          // when it began

	launcher *starter // nil if this process starts the ranks

	thread      chan func()  // what onThread runs; nil before the first
	env         []string     // of every rank
	generations *generations // nil: the job has one world
}

// A phase is the state of a rank.
//
//	phase              event                                        next
//	pending            the process that a launcher starts connects  runs
//	                   the launcher has ended                       gone
//	runs               stopped at the first success of a rank       stopped
//	stopped            continued                                    runs
//	                   all other ranks have ended                   outlived
//	runs to outlived   its process has ended                        lingers if its group is not empty, else gone
//	lingers            lingerLimit                                  asked
//	lingers, asked     its group is empty                           gone
type phase int

const (
	pending  phase = iota // its process is not known
	runs                  // its process runs
	stopped               // since a rank succeeded, its process is stopped
	outlived              // its process is being killed, because it was stopped and all others had ended
	lingers               // its process has ended, and others of its group run
	asked                 // and have been sent SIGTERM
	gone                  // its group is empty
)

type rank struct {
	id      int // its rank in the whole job; with generations, the number that the launcher knows it by
	number  int // its rank in the whole job: with generations, in that of the world for which it has a place
	place   int // of Config.Places
	program Program
	phase   phase
	proc    *os.Process
	pgid    int       // 0 while pending
	since   time.Time // of phase lingers

	drained chan struct{} // closed when its output has been passed on
	pipes   []*pipe       // where its output comes from
}

func (r *rank) running() bool { return r.phase <= outlived }

type exit struct {
	rank int // its index in Job.ranks
	wait syscall.WaitStatus
	err  error
	at   time.Time
	// unknown means that the rank has ended, and its status is not known (yet).
	unknown bool
}

// Start starts the ranks of a job. If one cannot be started, it ends the ranks started
// before and returns the reason.
func Start(cfg Config) (*Job, error) {
	ranks := cfg.Programs.Ranks()
	if ranks < 1 && !cfg.relays() || ranks > MaxRanks {
		return nil, fmt.Errorf("%d ranks: a job has 1 to %d on one node", ranks, MaxRanks)
	}
	if most := max(cfg.most(), 1); cfg.Places != nil && len(cfg.Places) != most {
		return nil, fmt.Errorf("got places for %d ranks, want %d", len(cfg.Places), most)
	}
	if cfg.Stdout == nil {
		cfg.Stdout = os.Stdout
	}
	if cfg.Stderr == nil {
		cfg.Stderr = os.Stderr
	}
	if cfg.Env == nil {
		cfg.Env = os.Environ()
	}
	if cfg.Backend == "" {
		cfg.Backend = "shm"
	}
	if cfg.Job == "" {
		cfg.Job = rand.Text()
	}
	j := &Job{
		cfg: cfg, begun: time.Now(), oomKills: oomKills(os.DirFS("/")), ended: make(chan exit, ranks), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	j.out = &output{stdout: cfg.Stdout, stderr: cfg.Stderr, failed: func(err error) {
		j.ask(func(s *state) { s.m.OutputFailed(err) })
	}}
	j.out.terminal = [2]bool{isTerminal(cfg.Stdout), isTerminal(cfg.Stderr)}
	cfg.Keeper.received(helloLimit) // it survives signals from now on
	start := j.launch
	if cfg.Launch != nil {
		start = j.launchBy
	}
	if err := start(); err != nil {
		return nil, err
	}
	return j, nil
}

// Wait waits until the job has ended and all its processes are gone, and returns the result.
func (j *Job) Wait() job.Result {
	<-j.done
	j.feeding.Wait()
	return j.result
}

// Stop ends the job without a message. It and the methods below do not block, and have effect in the order of the calls.
func (j *Job) Stop() { j.ask(func(s *state) { s.m.End(0, nil, "") }) }

// Abandon is Stop for ranks that nobody needs any more: they are killed.
func (j *Job) Abandon() { j.ask(func(s *state) { s.m.Abandon(nil) }) }

// Signal passes a signal of the larger job on to the ranks.
func (j *Job) Signal(n syscall.Signal) {
	j.ask(func(s *state) {
		if job.AsksForEnd(n) {
			noteEnding(s.cfg.Folder)
		}
		s.pass(n, false)
	})
}

// NoteStopped records which ranks are stopped when a rank of the larger job has ended with status 0.
func (j *Job) NoteStopped() { j.ask((*state).noteStopped) }

// EndStopped ends the ranks that have been stopped since then, because all others of the larger job have ended.
func (j *Job) EndStopped() { j.ask((*state).endStopped) }

// ask has the job's goroutine call f. It does not wait for that, which may never come if the job has ended.
func (j *Job) ask(f func(*state)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.queue = append(j.queue, f)
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// do calls f in the job's goroutine. It reports false if the job has ended.
func (j *Job) do(f func(*state)) bool {
	called := make(chan struct{})
	j.ask(func(s *state) {
		f(s)
		close(called)
	})
	select {
	case <-called:
		return true
	case <-j.done:
		return false
	}
}

func (s *state) handleRequests() {
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	s.mu.Unlock()
	for _, f := range queue {
		f(s)
	}
}

// onThread calls start on a thread that lives until the job's end: the kernel kills a process when the thread
// that started it ends. A separate thread also keeps the ranks' affinity away from the launcher's other threads.
// One goroutine at a time calls it.
func (j *Job) onThread(start func() error) error {
	if j.thread == nil {
		j.thread = make(chan func())
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			for {
				select {
				case f := <-j.thread:
					f()
				case <-j.done:
					return
				}
			}
		}()
	}
	started := make(chan error)
	j.thread <- func() { started <- start() }
	return <-started
}

func (j *Job) launch() error {
	if err := shmem.Files(j.cfg.descriptors(), "starting "+job.Count(j.cfg.Programs.Ranks(), "rank")); err != nil {
		return err
	}
	stdin, keys, err := openStdin(j.cfg.Stdin)
	if err != nil {
		return err
	}
	if stdin != j.cfg.Stdin {
		defer stdin.Close()
	}
	j.env = append(without(j.cfg.Env, EnvRank, EnvSize, generation.Env, envJoined), EnvBackend+"="+j.cfg.Backend, EnvJob+"="+j.cfg.Job)
	if j.generations, err = j.cfg.listen(); err != nil {
		return err
	}
	if j.watch, err = newWatch(); err != nil {
		j.generations.close()
		return fmt.Errorf("watching ranks: %w", err)
	}
	err = j.onThread(func() error {
		for i := range j.cfg.Programs.Ranks() {
			var in *os.File
			number := i
			if j.cfg.Part != nil {
				number += j.cfg.Part.First
			}
			if number == 0 {
				in = stdin
			}
			if err := j.startRank(&rank{id: number, number: number, place: i, program: j.cfg.program(i)}, in); err != nil {
				return err
			}
		}
		return nil
	})
	go j.watch.run(j.ended, j.done)
	if keys != nil {
		j.feeding.Go(func() { j.feed(keys) })
	}
	go j.run(err)
	if err != nil {
		<-j.done
	}
	return err
}

// descriptors is the largest number of descriptors that the launcher of a job opens: for each rank two for its output, two to
// watch its end, and a connection, all of that also for the process that takes its place, and a few more.
func (c *Config) descriptors() int {
	each := 5
	if c.replaces() {
		each *= 2
	}
	return each*c.most() + 8
}

// startRank starts the process of a rank, with its output connected. Without stdin it reads the null device.
func (j *Job) startRank(r *rank, stdin *os.File) error {
	index := len(j.ranks)
	r.drained = make(chan struct{})
	files, started, err := j.openOutput(r)
	if err != nil {
		return err
	}
	defer func() { started(r.proc != nil) }()
	if j.cfg.Places != nil {
		err := setAffinity(j.cfg.Places[r.place%len(j.cfg.Places)])
		switch {
		case errors.Is(err, fs.ErrPermission): // a container may forbid it
			j.out.say(fmt.Sprintf("cohort: ranks are not bound to processors: %v\n", err))
			j.cfg.Places = nil
		case err != nil:
			return fmt.Errorf("binding rank %d to processors %v: %w", r.number, j.cfg.Places[r.place%len(j.cfg.Places)], err)
		}
	}
	pidfd := -1
	env := append(slices.Clone(j.env), EnvRank+"="+strconv.Itoa(r.number), EnvSize+"="+strconv.Itoa(max(j.size(), r.number+1)))
	cmd := &exec.Cmd{
		Path: r.program.Path, Args: append([]string{r.program.Path}, r.program.Args...),
		Env:    append(env, j.generations.env(r.id)...), // of variables with the same name the last counts
		Stdout: files[0], Stderr: files[1], SysProcAttr: sysProcAttr(&pidfd),
	}
	if stdin != nil {
		cmd.Stdin = stdin
	}
	if err := cmd.Start(); err != nil {
		return j.startError(r, err)
	}
	r.proc = cmd.Process
	r.phase, r.pgid = runs, r.proc.Pid
	j.cfg.Keeper.Group(r.pgid)
	j.ranks = append(j.ranks, r)
	if j.watch.follow(index, r.pgid, r.proc, pidfd) != nil {
		go func() {
			select {
			case j.ended <- reap(index, r.proc, time.Time{}):
			case <-j.done:
			}
		}()
	}
	return nil
}

// openOutput returns the standard output and error of a rank. The caller calls started
// with true once the rank has been started, and its output is then passed on, or with
// false if it could not be started.
func (j *Job) openOutput(r *rank) (files [2]*os.File, started func(bool), err error) {
	var given []*os.File // the rank's ends of pipes
	var piped []io.Writer
	started = func(ok bool) {
		for _, f := range given {
			f.Close()
		}
		if ok {
			j.connect(r, piped)
			return
		}
		for _, p := range r.pipes {
			p.file.Close()
		}
		r.pipes = nil
	}
	for k, w := range []io.Writer{j.cfg.Stdout, j.cfg.Stderr} {
		if k == 0 && j.cfg.Show.hides(r.number) {
			w = io.Discard
		}
		if f := j.direct(w); f != nil {
			files[k] = f
			continue
		}
		read, write, err := os.Pipe()
		if err != nil {
			started(false)
			return files, nil, j.startError(r, err)
		}
		given, r.pipes = append(given, write), append(r.pipes, &pipe{file: read})
		piped, files[k] = append(piped, w), write
	}
	return files, started, nil
}

// direct returns the file to which ranks write w's output themselves, nil if this process passes it on.
func (j *Job) direct(w io.Writer) *os.File {
	if j.cfg.Tag || j.cfg.Copy != nil {
		return nil
	}
	f, _ := w.(*os.File)
	return f
}

func (j *Job) connect(r *rank, to []io.Writer) {
	var passing sync.WaitGroup
	number := r.number // which may change later
	for k, w := range to {
		passing.Go(func() {
			from := r.pipes[k]
			if j.cfg.Copy != nil {
				from.to, from.failed = j.cfg.Copy(number, k), j.out.failed
			}
			if j.cfg.Tag && w != io.Discard {
				j.out.copyTagged(w, from, strconv.Itoa(number), j.out.terminal[k])
			} else {
				j.out.copy(w, from)
			}
			from.file.Close()
		})
	}
	go func() {
		passing.Wait()
		close(r.drained)
	}()
}

func (j *Job) startError(r *rank, err error) error {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return fmt.Errorf("starting rank %d of %d: %w; raise the limit of open files (ulimit -n) or start fewer ranks", r.number, j.size(), err)
	}
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) {
		return fmt.Errorf("starting rank %d of %d: %w; the limit of processes (ulimit -u, pids.max) or memory is reached: start fewer ranks", r.number, j.size(), err)
	}
	return fmt.Errorf("starting rank %d: %w", r.number, Explain(r.program.Path, err))
}

func without(env []string, names ...string) []string {
	var rest []string
	for _, e := range env {
		if name, _, _ := strings.Cut(e, "="); !slices.Contains(names, name) {
			rest = append(rest, e)
		}
	}
	return rest
}

// size returns the number of ranks of the whole job.
func (j *Job) size() int {
	if j.cfg.Part == nil {
		return j.cfg.Programs.Ranks()
	}
	return j.cfg.Part.Size
}
