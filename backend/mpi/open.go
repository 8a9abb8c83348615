//go:build cgo && linux

package mpi

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
	"github.com/cohort-hpc/cohort/topo"
)

// Config is how to join an MPI job.
type Config struct {
	Library       string // path of the library, empty to search
	Check         bool   // detect mismatched collectives
	Deterministic bool   // reduce in the order of the other backends
	Bounded       bool   // operations can end early, by a deadline or a canceled context

	Settings mpiquirks.Settings
}

// opened ensures that a process joins once: MPI cannot be initialized again. It also keeps all that the library may
// still use, whatever the program forgets: memory that the collector found pinned would end the process.
var opened struct {
	sync.Mutex
	before bool
	joined *process
}

func initFault(format string, args ...any) error {
	return backend.Faultf(backend.ErrInit, format, args...)
}

// Open joins the job in which an MPI launcher started this process, and returns its first
// communicator. All processes of the job call it, once.
func Open(ctx context.Context, cfg Config) (backend.Comm, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.before {
		return nil, initFault("this process has joined a job before, and MPI can be initialized only once; call Init once per process")
	}
	level, err := levelOf(cfg.Settings.ThreadLevel)
	if err != nil {
		return nil, err
	}
	p := &process{}
	launcher := mpifind.Launched(os.LookupEnv)
	placed := topo.ThisJob()
	if node, err := topo.Here(); err == nil { // an unknown node counts as not oversubscribed
		cfg.Settings.Oversubscribed = cfg.Settings.Oversubscribed || oversubscribed(placed, node)
	}
	own, _ := os.Hostname()
	p.job.hosts = []string{placed.HostName(own)}
	if err := p.load(cfg); err != nil {
		return nil, err
	}
	opened.before, opened.joined = true, p
	if err := p.initialize(ctx, level); err != nil {
		return nil, err
	}
	if err := p.alone(launcher); err != nil {
		p.exit(leaving{})
		return nil, err
	}
	// After a later failure MPI is not finalized: the other ranks may never call MPI_Finalize.
	var c *comm
	if p.ending.thread == nil { // no other thread may call
		return p.join(cfg)
	}
	err = within(ctx, "the first collectives of the job have not returned", func() (err error) {
		c, err = p.join(cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// within returns f's result, or an error if ctx ends first.
func within(ctx context.Context, late string, f func() error) error {
	if ctx.Done() == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return backend.Faultf(backend.ErrInit, "%s: %v; check that all processes of the job are running", late, context.Cause(ctx))
	}
}

// agreement is what this rank asks for.
func (cfg *Config) agreement() agreement {
	switch {
	case cfg.Check:
		return agreeToCheck
	case cfg.Bounded:
		return agreeToEnd
	}
	return agreeNever
}

func levelOf(name string) (libmpi.Level, error) {
	if name == "" {
		return libmpi.Multiple, nil
	}
	for l := libmpi.Single; l <= libmpi.Multiple; l++ {
		if l.String() == name {
			return l, nil
		}
	}
	return 0, initFault("thread level %q: want single, funneled, serialized or multiple", name)
}

// readers are the files of libraries below MPI that read a variable as soon as they are loaded,
// which a tool may have caused earlier. Other variables are read when MPI is initialized.
var readers = map[string]string{"UCX_HANDLE_ERRORS": "libucs.", "UCX_DEBUG_SIGNO": "libucs.", "IPATH_NO_BACKTRACE": "libinfinipath."}

// load finds and loads the library, and sets its environment variables before.
func (p *process) load(cfg Config) error {
	present, initialized := "", false
	if libmpi.Present() {
		l, err := libmpi.Open("")
		if err != nil {
			return initFault("the MPI library in this process: %v", err)
		}
		present = l.Path
		initialized, _, _, _ = libmpi.State()
	}
	found, err := mpifind.Choose(cfg.Library, os.LookupEnv, present)
	if err != nil {
		return initFault("%v", err)
	}
	var failed []string
	for _, l := range found {
		settings, err := cfg.Settings.Environment(l.Family, l.Vendor, l.Version, os.LookupEnv)
		if err != nil {
			return initFault("%v: %s", l, asFault(err).Text)
		}
		if err := apply(settings, initialized); err != nil {
			return err
		}
		path := l.Path
		if present != "" {
			path = ""
		}
		lib, err := libmpi.Open(path)
		if err == nil {
			p.lib = newLibrary(lib, l, settings)
			p.lib.unprofiled = cfg.Settings.Profiling && !slices.ContainsFunc(settings, func(s mpiquirks.Setting) bool { return s.Why == mpiquirks.WhyProfile })
			return nil
		}
		failed = append(failed, fmt.Sprintf("%v: %v", l, err))
	}
	return &mpifind.Unusable{Err: initFault("no MPI library can be loaded: %s", strings.Join(failed, "; "))}
}

// apply sets the variables of the environment that the library still reads, and marks the others as late.
func apply(settings []mpiquirks.Setting, initialized bool) error {
	for i, s := range settings {
		if !s.Applied {
			continue
		}
		if reader := readers[s.Name]; initialized || reader != "" && inProcess(reader) {
			settings[i].Applied, settings[i].Late = false, true
		} else if err := os.Setenv(s.Name, s.Value); err != nil {
			return initFault("setting %s: %v", s.Name, err)
		}
	}
	return nil
}

// newLibrary returns what the text of a loaded library tells. That may be more than the name of its file did.
func newLibrary(lib *libmpi.Library, file mpifind.Library, settings []mpiquirks.Setting) library {
	vendor, version := mpiquirks.Identify(lib.Text)
	if vendor == "" {
		vendor, version = file.Vendor, file.Version
	}
	r := mpiquirks.ParseRelease(version)
	of := mpiquirks.Of(mpifind.Family(lib.ABI), vendor, r)
	return library{Library: lib, implementation: of, quirks: mpiquirks.QuirksIn(of, r), settings: settings}
}
