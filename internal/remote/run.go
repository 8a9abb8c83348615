//go:build unix

package remote

import (
	"context"
	"crypto/rand"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

const (
	// atOnce is the number of hosts to connect to at the same time.
	atOnce = 32
	// shown is the number of hosts whose errors are printed.
	shown = 8
)

// shellLimit is the time for a host's login shell to reach the boot script after ssh has started, and for each
// step from there to the agent's first message. Tests set a shorter one.
var shellLimit = time.Minute

// launcher is the state of a job.
type launcher struct {
	cfg      Config
	name     string
	hosts    []*host
	programs map[string]*file // to send, by path
	files    spawn.Files      // of the ranks' output
	secret   string           // of the ranks whose coordinator this process is, in the form of its file
	begun    time.Time
	stopped  syscall.Signal // the signal that ended the preparation
	closed   chan struct{}  // closed when messages from the hosts are no longer read
}

// Run starts the ranks of a job and supervises them until the end:
//
//  1. It connects to all hosts by ssh, and starts an agent on each (boot.go).
//  2. It assigns ranks to hosts, and starts the coordinator.
//  3. Every host gets its programs and all that its ranks need. If one host fails, no rank starts.
//  4. The ranks run (judge.go).
//  5. It leaves nothing on any host that can be reached.
//
// It returns the job's status. An error is the reason why the ranks were not started.
func Run(cfg Config) (status int, err error) {
	j := &launcher{cfg: cfg, name: rand.Text(), programs: map[string]*file{}, closed: make(chan struct{})}
	hosts := cfg.Hosts
	counts := make([]int, len(hosts))
	ranks := cfg.Programs.Ranks()
	if ranks > 0 {
		if counts, err = share(hosts, ranks); err != nil {
			return 2, err
		}
	}
	for i, h := range hosts {
		if ranks == 0 || counts[i] > 0 || cfg.Generations != nil {
			j.hosts = append(j.hosts, &host{Host: h, count: counts[i]})
		}
	}
	defer j.close()
	exe, err := ownExecutable()
	if err != nil {
		return 1, err
	}
	defer exe.open.Close()
	for _, p := range cfg.Programs {
		if !strings.Contains(p.Path, "/") || !cfg.Copy || j.programs[p.Path] != nil {
			continue
		}
		f, err := openFile(p.Path, p.Path)
		if err != nil {
			return 2, err
		}
		defer f.open.Close()
		j.programs[p.Path] = f
	}
	err = j.each(func(ctx context.Context, h *host) error { return j.connect(ctx, h, exe) })
	if err == nil {
		err = j.place()
	}
	if err == nil && cfg.Generations == nil {
		var end func()
		if end, err = j.startCoordinator(); err == nil {
			defer end()
		}
	}
	if err == nil {
		err = j.each(j.prepare)
	}
	if err == nil && cfg.Output != "" { // last, because it removes earlier files
		j.files, err = spawn.OpenFiles(cfg.Output, j.most())
		defer func() { status, err = j.files.Conclude(status, err) }()
	}
	if err != nil {
		if j.stopped != 0 {
			return 128 + int(j.stopped), err
		}
		return 2, err
	}
	return j.supervise()
}

// most returns the largest number of ranks that the job can have.
func (j *launcher) most() int {
	if j.cfg.Generations != nil {
		return j.cfg.Generations.Max
	}
	return j.cfg.Programs.Ranks()
}

func (j *launcher) all(is func(*host) bool) bool {
	return !slices.ContainsFunc(j.hosts, func(h *host) bool { return !is(h) })
}

// each calls do for all hosts, and returns the errors of all of them. A signal that requests the end cancels it.
func (j *launcher) each(do func(context.Context, *host) error) error {
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
	j.stopped = job.Prepare(j.cfg.Signals, all, func(n syscall.Signal) {
		cancel(fmt.Errorf("stopped while starting the ranks: %v", n))
	})
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

// connect starts the agent on a host.
func (j *launcher) connect(ctx context.Context, h *host, exe *file) error {
	s, err := openShell(j.cfg.SSH, j.cfg.Srun, h.Name, j.cfg.Keeper)
	if err != nil {
		return err
	}
	h.shell = s
	defer context.AfterFunc(ctx, s.kill)()
	p := newPatience(s)
	defer p.timer.Stop()
	_, err = s.r.Peek(1)
	if err != nil && p.expired.Load() {
		return fmt.Errorf("its login shell did not answer within %v", shellLimit)
	}
	if err == nil {
		err = boot(s.r, p, exe, j.cfg.Copy)
	}
	if err == nil {
		err = awaitAgent(s.r)
	}
	if err != nil {
		return p.explain(ctx, err)
	}
	h.link, h.in = newLink(s.in), gob.NewDecoder(h)
	var m message
	switch err = h.in.Decode(&m); {
	case err == nil && m.Kind == kindFault:
		return errors.New(string(m.Data))
	case err == nil && m.Hello == nil:
		err = fmt.Errorf("a message of kind %q, want %q", byte(m.Kind), byte(kindHello))
	}
	if err != nil {
		return p.explain(ctx, err)
	}
	p.timer.Stop()
	h.hello = *m.Hello
	if h.hello.Protocol != protocol {
		return fmt.Errorf("the host has cohort %s with protocol %d, this is %s with protocol %d; install the same version, or leave out --no-copy",
			h.hello.Version, h.hello.Protocol, j.cfg.Version, protocol)
	}
	h.attend(j.closed)
	return nil
}

// place assigns ranks to hosts: blocks, in the order of the hosts.
func (j *launcher) place() error {
	if programs := j.cfg.Programs; programs.Ranks() == 0 {
		for _, h := range j.hosts {
			if h.count = h.Slots; h.count == 0 {
				h.count = min(h.hello.Usable, spawn.MaxRanks)
			}
			programs[0].Ranks += h.count
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
	if j.cfg.Generations == nil {
		return nil
	}
	g := *j.cfg.Generations
	if g.Max == 0 {
		g.Min, g.Max = first, first
	}
	if j.cfg.Generations = &g; first < g.Min || first > g.Max {
		return fmt.Errorf("the hosts have room for %s, and the job can have %d to %d; give their number (-n)", job.Count(first, "rank"), g.Min, g.Max)
	}
	return nil
}

// prepare sends a host all that its ranks need.
func (j *launcher) prepare(ctx context.Context, h *host) error {
	defer context.AfterFunc(ctx, h.shell.kill)()
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	c := &j.cfg
	w := work{
		Job: j.name, First: h.first, Size: c.Programs.Ranks(), Folder: folder,
		Bind: c.Bind, Tag: c.Tag, Show: c.Show, Copy: c.Output != "", Flight: c.Flight != "",
	}
	w.Env, w.Secret = append(slices.Clip(c.Env), j.meeting(h)...), j.secret
	programs := c.Programs.Part(h.first, h.count)
	if c.Generations != nil {
		w.Most = c.Generations.Max
		programs = spawn.Programs{{Path: c.Programs[0].Path, Args: c.Programs[0].Args, Ranks: h.count}}
	}
	for _, p := range programs {
		x := program{Program: p}
		if f := j.programs[p.Path]; f != nil {
			x.Sum = f.sum
		}
		w.Programs = append(w.Programs, x)
	}
	h.link.send(message{Kind: kindWork, Work: &w})
	for {
		e := h.next()
		switch {
		case e.err != nil:
			return h.explain(ctx, e.err)
		case e.Kind == kindFault:
			return errors.New(string(e.Data))
		case e.Kind == kindReady:
			if len(e.Data) > 0 {
				fmt.Fprintf(c.Stderr, "cohort: host %s: %s\n", h.Name, e.Data)
			}
			return nil
		case e.Kind == kindNeed && j.programs[string(e.Data)] != nil:
			if err := h.upload(j.programs[string(e.Data)]); err != nil && !isEnd(err) { // if the connection ended, the agent may have sent the reason
				return h.explain(ctx, err)
			}
		default:
			return fmt.Errorf("unexpected message of kind %q", byte(e.Kind))
		}
	}
}

func (h *host) upload(f *file) error {
	r, b := f.reader(), make([]byte, maxChunk)
	for {
		n, err := r.Read(b)
		if n > 0 {
			if err := h.link.deliver(message{Kind: kindFile, Data: b[:n]}, nil); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			h.link.say(kindFile)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// close closes the connections to the agents, and waits until each ssh has ended.
func (j *launcher) close() {
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

// isEnd reports whether an error only reports the end of a connection.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE)
}
