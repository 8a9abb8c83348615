//go:build unix

package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

const (
	// atOnce is how many hosts are connected to at the same time.
	atOnce = 32
	// shown is of how many hosts it is said what is wrong with them.
	shown = 8
)

// shellLimit is for a host's login shell to get to the boot script, once ssh is started, and for each step from
// there to the agent's first word. A test has less.
var shellLimit = time.Minute

// job is one on its way.
type job struct {
	cfg         Config
	name        string
	hosts       []*host
	program     *file // what is sent, nil for none
	coordinator *coordinator
	begun       time.Time
	stopped     syscall.Signal // the signal that ended the preparation
	closed      chan struct{}  // closed when nobody wants to hear of the hosts any more
}

// Run starts the ranks of a job and sees them through:
//
//  1. ssh to all hosts, which gets an agent started on each (boot.go);
//  2. who has which ranks, and where they meet;
//  3. every host has the program and all that ranks need, or none starts any;
//  4. the ranks run (judge.go);
//  5. nothing is left on any host that can be reached.
//
// It returns the job's status. An error says why the ranks were not started.
func Run(cfg Config) (status int, err error) {
	j := &job{cfg: cfg, name: rand.Text(), closed: make(chan struct{})}
	hosts := cfg.Hosts
	counts := make([]int, len(hosts))
	if cfg.Ranks > 0 {
		if counts, err = share(hosts, cfg.Ranks); err != nil {
			return 2, err
		}
	}
	for i, h := range hosts {
		if cfg.Ranks == 0 || counts[i] > 0 {
			j.hosts = append(j.hosts, &host{Host: h, count: counts[i]})
		}
	}
	defer j.close()
	exe, err := ownExecutable()
	if err != nil {
		return 1, err
	}
	defer exe.open.Close()
	if strings.Contains(cfg.Program, "/") && cfg.Copy {
		if j.program, err = openFile(cfg.Program, cfg.Program); err != nil {
			return 2, err
		}
		defer j.program.open.Close()
	}
	err = j.each(func(ctx context.Context, h *host) error { return j.connect(ctx, h, exe) })
	if err == nil {
		err = j.place()
	}
	if err == nil {
		err = j.startCoordinator()
	}
	if err == nil {
		defer j.coordinator.end()
		err = j.each(j.prepare)
	}
	if err != nil {
		if j.stopped != 0 {
			return 128 + int(j.stopped), err
		}
		return 2, err
	}
	return j.see(), nil
}

// each does something with all hosts, so that what is wrong with several is said of all. A signal that asks
// for an end ends it.
func (j *job) each(do func(context.Context, *host) error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	errs := make([]error, len(j.hosts))
	all := make(chan struct{})
	go func() {
		defer close(all)
		var running sync.WaitGroup
		slots := make(chan struct{}, atOnce)
		for i, h := range j.hosts {
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				if errs[i] = context.Cause(ctx); errs[i] == nil {
					errs[i] = do(ctx, h)
				}
			})
		}
		running.Wait()
	}()
	for done := false; !done; {
		select {
		case <-all:
			done = true
		case s := <-j.cfg.Signals:
			n, _ := s.(syscall.Signal)
			switch n {
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
				if j.stopped == 0 {
					j.stopped = n
					cancel(fmt.Errorf("stopped while starting the ranks: %v", n))
				}
			case syscall.SIGTSTP:
				syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			}
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var texts []string
	for i, err := range errs {
		if err != nil {
			texts = append(texts, fmt.Sprintf("host %s: %v", j.hosts[i].Name, err))
		}
	}
	if n := len(texts); n > shown {
		texts = append(texts[:shown], fmt.Sprintf("and %d other hosts", n-shown))
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "\n"))
}

// connect gets the agent on a host started.
func (j *job) connect(ctx context.Context, h *host, exe *file) error {
	s, err := openShell(j.cfg.SSH, h.Name, j.cfg.Keeper)
	if err != nil {
		return err
	}
	h.shell = s
	defer context.AfterFunc(ctx, s.kill)()
	p := newPatience(s)
	defer p.end()
	_, err = s.r.Peek(1)
	if err != nil && p.out() {
		return fmt.Errorf("its login shell did not answer within %v", shellLimit)
	}
	if err == nil {
		err = boot(s.r, p, exe, j.cfg.Copy)
	}
	if err != nil {
		return p.explain(ctx, err)
	}
	h.link = newLink(s.in)
	k, b, err := readFrame(s.r, toLauncher)
	switch {
	case err == nil && k == kindFault:
		return errors.New(string(b))
	case err == nil && k != kindHello:
		err = fmt.Errorf("a message of kind %q, want %q", byte(k), byte(kindHello))
	}
	if err == nil {
		h.hello, err = decode[hello](b, "its first message")
	}
	if err != nil {
		return p.explain(ctx, err)
	}
	p.end()
	if h.hello.Protocol != protocol {
		return fmt.Errorf("the host has cohort %s with protocol %d, this is %s with protocol %d; install the same version, or leave out --no-copy",
			h.hello.Version, h.hello.Protocol, j.cfg.Version, protocol)
	}
	h.attend(j.closed)
	return nil
}

// place says which ranks each host has: blocks, in the order of the hosts.
func (j *job) place() error {
	if j.cfg.Ranks == 0 {
		for _, h := range j.hosts {
			if h.count = h.Slots; h.count == 0 {
				h.count = min(h.hello.Usable, spawn.MaxRanks)
			}
			j.cfg.Ranks += h.count
		}
	}
	first := 0
	for _, h := range j.hosts {
		if h.count > spawn.MaxRanks {
			return fmt.Errorf("%d ranks on host %s, want at most %d", h.count, h.Name, spawn.MaxRanks)
		}
		h.first = first
		first += h.count
	}
	return nil
}

// prepare gives a host all that its ranks need.
func (j *job) prepare(ctx context.Context, h *host) error {
	defer context.AfterFunc(ctx, h.shell.kill)()
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	c := &j.cfg
	w := work{
		Job: j.name, Backend: c.Backend, First: h.first, Ranks: h.count, Size: c.Ranks, Args: c.Args, Folder: text(folder),
		Bind: string(c.Bind), Tag: c.Tag, Resilient: c.Resilient, Flight: c.Flight != "", Secret: j.coordinator.secret,
		Program: program{Name: text(c.Program), Path: text(c.Program), Command: !strings.Contains(c.Program, "/")},
		Env:     append(append([]string{}, c.Env...), j.coordinator.variables(h)...),
	}
	if j.program != nil {
		w.Program.Sum, w.Program.Size = j.program.sum, j.program.size
	}
	h.link.sendJSON(kindWork, w)
	for {
		k, b, err := h.next()
		switch {
		case err != nil:
			return h.explain(ctx, err)
		case k == kindFault:
			return errors.New(string(b))
		case k == kindReady:
			r, err := decode[ready](b, "its answer")
			if err == nil && r.Note != "" {
				fmt.Fprintf(c.Stderr, "cohort: host %s: %s\n", h.Name, r.Note)
			}
			return err
		case k == kindNeed && j.program != nil:
			if err := h.upload(j.program); err != nil && !isEnd(err) { // of an end the agent may have said why
				return h.explain(ctx, err)
			}
		default:
			return fmt.Errorf("unexpected message of kind %q", byte(k))
		}
	}
}

// upload sends the program.
func (h *host) upload(f *file) error {
	r, b := f.reader(), make([]byte, maxChunk)
	for {
		n, err := r.Read(b)
		if n > 0 {
			if err := h.link.room(); err != nil {
				return err
			}
			h.link.send(kindFile, b[:n])
		}
		if errors.Is(err, io.EOF) {
			h.link.send(kindFile)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// close lets the agents go, and waits until each ssh has ended.
func (j *job) close() {
	close(j.closed)
	late := time.After(partingLimit)
	for _, h := range j.hosts {
		if h.link != nil {
			h.link.close()
		} else if h.shell != nil {
			h.shell.in.Close()
		}
	}
	for _, h := range j.hosts {
		if h.shell == nil {
			continue
		}
		select {
		case <-h.shell.ended:
		case <-late:
			h.shell.kill()
			<-h.shell.ended
			late = time.After(0)
		}
		h.shell.out.Close()
	}
}

// isEnd reports whether an error is no more than the end of a connection.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE)
}
