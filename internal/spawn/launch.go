//go:build unix

package spawn

import (
	"bufio"
	"crypto/rand"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/topo"
)

const (
	helloLimit = 10 * time.Second       // for the hello of a process that connects
	closeLimit = 700 * time.Millisecond // for the launcher to end by itself once its ranks have been killed
	inherited  = 16                     // descriptors that the launcher may be started with
	ofLauncher = -2                     // in place of a rank in an exit
)

// starter is the state of a job's launcher.
type starter struct {
	proc     *os.Process
	up       bool
	ending   exit // set once up is false
	output   *pipe
	passed   chan struct{} // closed when its output has been passed on
	listen   net.Listener
	hellos   chan hello       // without a buffer: the job that receives one closes its connection
	followed chan struct{}    // closed when the job's watch has ended
	stuck    <-chan time.Time // when to kill the launcher
}

// hello is the first message of a process that claims to be a rank.
type hello struct {
	rank, size, pid int
	conn            *net.UnixConn
}

// order is the program that a rank executes.
type order struct {
	Path string
	Args []string // from argv[0] on
	Env  []string // to be set
	CPUs topo.CPUSet
}

func (j *Job) launchBy() error {
	c := j.cfg.Launch
	if err := shmem.Files(c.Descriptors, "starting "+job.Count(j.cfg.Programs.Ranks(), "rank")+" by "+c.Name); err != nil {
		return err
	}
	l := &starter{up: true, passed: make(chan struct{}), followed: make(chan struct{}), hellos: make(chan hello)}
	j.launcher = l
	address, err := l.listenForRanks()
	if err != nil {
		return err
	}
	if pidfdsWork() {
		if j.watch, err = newWatch(); err != nil {
			l.listen.Close()
			return fmt.Errorf("watching ranks: %w", err)
		}
	}
	for i := range j.cfg.Programs.Ranks() {
		j.ranks = append(j.ranks, &rank{id: i, number: i, program: j.cfg.Programs.Of(i), drained: make(chan struct{})})
	}
	if err := j.onThread(func() error { return j.startLauncher(address) }); err != nil {
		l.listen.Close()
		close(j.done)
		j.watch.close()
		j.watch.run(j.ended, j.done) // closes its descriptors
		return err
	}
	go func() {
		j.watch.run(j.ended, j.done)
		close(l.followed)
	}()
	go acceptIn(l.listen, j.greet)
	// In the watch, its end comes after those of the ranks for which it has waited.
	if j.watch.follow(ofLauncher, l.proc.Pid, l.proc, -1) != nil {
		go func() { j.ended <- reap(ofLauncher, l.proc, time.Time{}) }()
	}
	go j.passLauncher()
	go j.run(nil)
	return nil
}

// listenForRanks opens the socket to which ranks connect for their orders. On Linux it
// has no name in the file system.
func (l *starter) listenForRanks() (address string, err error) {
	address = "cohort-run-" + rand.Text()
	if runtime.GOOS == "linux" {
		address = "@" + address
	} else {
		address = filepath.Join(os.TempDir(), address)
	}
	l.listen, err = net.Listen("unix", address)
	if err != nil {
		return "", fmt.Errorf("listening for the ranks: %w", err)
	}
	return address, nil
}

// startLauncher starts the launcher itself. Its output carries only its own messages:
// the ranks have separate output.
func (j *Job) startLauncher(address string) error {
	l, c := j.launcher, j.cfg.Launch
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer write.Close()
	env := without(j.cfg.Env, EnvBackend, EnvRank, EnvSize, EnvJob, generation.Env, envJoined, envRunDir)
	argv := append(append([]string{c.Command}, c.Args...), c.Rank...)
	cmd := &exec.Cmd{Path: c.Command, Args: append(argv, address), Env: append(env, c.Env...), Stdout: write, Stderr: write, SysProcAttr: sysProcAttr(nil)}
	if err := cmd.Start(); err != nil {
		read.Close()
		return fmt.Errorf("starting %s: %w", c.Name, Explain(c.Command, err))
	}
	l.proc = cmd.Process
	liftLimit(l.proc.Pid, inherited+c.Descriptors)
	l.output = &pipe{file: read}
	j.cfg.Keeper.Group(l.proc.Pid)
	return nil
}

// greet reads the hello of a process. It closes connections of processes that are not trusted.
func (j *Job) greet(conn net.Conn) {
	c := conn.(*net.UnixConn)
	h := hello{conn: c}
	c.SetDeadline(time.Now().Add(helloLimit))
	if _, err := fmt.Fscanf(c, "rank %d of %d process %d\n", &h.rank, &h.size, &h.pid); err == nil && trusted(c, &h.pid) {
		select {
		case j.launcher.hellos <- h:
			return
		case <-j.done:
		}
	}
	c.Close()
}

// hello makes a process that the launcher has started one of the job's ranks.
func (s *state) hello(h hello) {
	if s.last != 0 {
		h.conn.Close() // the process then ends
		return
	}
	var err error
	switch name := s.cfg.Launch.Name; {
	case h.size != len(s.ranks):
		err = fmt.Errorf("%s started %d ranks, want %d", name, h.size, len(s.ranks))
	case h.rank < 0 || h.rank >= h.size || s.ranks[h.rank].pgid != 0:
		err = fmt.Errorf("%s started rank %d of %d twice", name, h.rank, h.size)
	case s.ranks[h.rank].phase == gone: // the launcher ended first, because another rank failed
		h.conn.Close()
		return
	default:
		err = s.admit(h)
	}
	if err != nil {
		h.conn.Close()
		s.m.End(1, err, err.Error())
	}
}

// admit connects a rank's input and output, starts to watch it, and sends it its order.
func (s *state) admit(h hello) error {
	r := s.ranks[h.rank]
	var in *os.File
	if h.rank == 0 {
		in = s.cfg.Stdin
	}
	in, keys, err := openStdin(in)
	if err != nil {
		return s.startError(r, err)
	}
	drop := func() {
		if in != s.cfg.Stdin {
			in.Close()
		}
	}
	files, started, err := s.openOutput(r)
	if err != nil {
		drop()
		return err
	}
	if err := s.watch.follow(h.rank, h.pid, nil, -1); err != nil && s.watch != nil {
		started(false)
		drop()
		if errors.Is(err, syscall.ESRCH) { // the launcher has ended it already, because another rank failed
			h.conn.Close()
			s.rankEnded(exit{rank: h.rank, at: time.Now(), unknown: true})
			return nil
		}
		return s.startError(r, err)
	}
	r.phase, r.pgid = runs, h.pid
	s.cfg.Keeper.Group(r.pgid)
	o := order{
		Path: r.program.Path,
		Args: append([]string{r.program.Path}, r.program.Args...),
		Env:  append([]string{EnvBackend + "=" + s.cfg.Backend}, s.cfg.Launch.Env...),
	}
	if s.cfg.Places != nil {
		o.CPUs = s.cfg.Places[h.rank]
	}
	s.feeding.Go(func() {
		sendOrder(h.conn, o, in, files[0], files[1]) // the watch reports a rank that has ended meanwhile
		started(true)
		drop()
		if keys != nil {
			s.feed(keys)
		}
	})
	if s.request != 0 {
		syscall.Kill(-r.pgid, s.request)
	}
	return nil
}

// sendOrder sends a rank its order and its descriptors.
func sendOrder(c *net.UnixConn, o order, files ...*os.File) {
	defer c.Close()
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	c.SetDeadline(time.Now().Add(helloLimit))
	if _, _, err := c.WriteMsgUnix([]byte{'.'}, syscall.UnixRights(fds...), nil); err == nil {
		_ = gob.NewEncoder(c).Encode(o)
	}
}

func (j *Job) passLauncher() {
	l := j.launcher
	defer close(l.passed)
	defer l.output.file.Close()
	r := bufio.NewReaderSize(l.output, firstRead)
	for {
		b, _, err := r.ReadLine() // a line above firstRead comes in pieces
		if err != nil {
			return
		}
		if line := string(b); strings.TrimSpace(line) != "" {
			j.out.say(j.cfg.Launch.Name + ": " + line + "\n")
		}
	}
}
