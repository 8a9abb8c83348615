package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// describeCommand is the command with which the doctor runs this program to describe
// one MPI library, because a process can load only one.
const describeCommand = "mpi-describe"

// withoutMPI is the reason why a program has no mpi backend.
const withoutMPI = "this cohort was built without it: on another system than Linux, with CGO_ENABLED=0 or with the tag cohort_nompi"

// describeLimit is how long a library may take to be loaded and to start.
const describeLimit = 10 * time.Second

type report struct {
	Path        string `json:"path"`
	ABI         string `json:"abi"`
	Launcher    string `json:"launcher,omitempty"`
	Standard    string `json:"standard,omitempty"` // the level of the standard
	Says        string `json:"says,omitempty"`     // what it calls itself
	ThreadLevel string `json:"thread_level,omitempty"`
	LargeCounts bool   `json:"large_counts"`
	Persistent  string `json:"persistent,omitempty"` // the names of its persistent collectives: MPI_, MPIX_
	CUDA        string `json:"cuda,omitempty"`
}

// describeLibrary is the main function of a process run with describeCommand. The library may hang, so it is
// loaded when standard input says that the keeper knows of this process.
func describeLibrary(path string) int {
	if n, _ := os.Stdin.Read(make([]byte, 1)); n == 0 {
		return 1 // the doctor was killed
	}
	r, err := describe(path)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// learn starts a process that loads the library, and adds its report. The keeper, which may be nil, ends that
// process if this one is killed.
func (r *report) learn(limit time.Duration, keeper *spawn.Keeper) error {
	text, said, err := self(limit, keeper, describeCommand, r.Path)
	var exit *exec.ExitError
	switch {
	case errors.Is(err, errHung):
		return fmt.Errorf("a process that loaded it: %w", err)
	case errors.As(err, &exit):
		first, last := ends(said)
		if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
			return fmt.Errorf("a process that loaded it crashed: signal %d (%v) %s", int(w.Signal()), w.Signal(), last)
		}
		if strings.Contains(said, "\ngoroutine ") { // the Go runtime has printed a stack
			return fmt.Errorf("a process that loaded it crashed: %s", first)
		}
		return errors.New(last)
	case err != nil:
		return err
	}
	// The library may have written something too.
	if i := strings.LastIndex(text, "{"); i >= 0 {
		text = text[i:]
	}
	learned := report{}
	if err := json.Unmarshal([]byte(text), &learned); err != nil {
		return fmt.Errorf("a process that loaded it said %q", text)
	}
	learned.Path, learned.ABI, learned.Launcher = r.Path, r.ABI, r.Launcher
	*r = learned
	return nil
}

func ends(text string) (first, last string) {
	text = strings.TrimSpace(text)
	first, _, _ = strings.Cut(text, "\n")
	return first, text[strings.LastIndexByte(text, '\n')+1:]
}

// lines describes the library in lines that fit a screen.
func (r *report) lines() []string {
	var all []string
	if r.Standard != "" {
		counts, persistent := "to 2³¹-1 (no _c functions)", "none"
		if r.LargeCounts {
			counts = "above 2³¹ (_c functions)"
		}
		if r.Persistent != "" {
			persistent = r.Persistent + "*_init"
		}
		all = append(all,
			fmt.Sprintf("MPI %s, threads: %s, counts %s", r.Standard, r.ThreadLevel, counts),
			fmt.Sprintf("persistent collectives: %s, CUDA-aware: %s", persistent, r.CUDA))
	}
	if r.Launcher != "" {
		all = append(all, "started by "+r.Launcher)
	}
	return all
}

// title names the library. If its file does not contain the version, as that of MPICH 4.2.1 does not, it is the
// name that the library returns when loaded.
func (r *report) title(lib mpifind.Library) string {
	if lib.Version == "" && r.Says != "" {
		return r.Says
	}
	return lib.Title()
}

// mpi reports which MPI libraries are installed, and whether they match the launchers.
func (d *diagnosis) mpi(env func(string) (string, bool)) {
	const group = "mpi"
	found, asked, err := libraries(env)
	if err != nil {
		d.add(group, "COHORT_MPI_LIB", fail, err.Error(), "set it to the path of an MPI library, or unset it")
		return
	}
	if len(found) == 0 {
		d.add(group, "libraries", none, "no MPI library found", "apt-get install mpich, or load a module; the other backends need none")
		return
	}
	inside := mpifind.Launched(env)
	var chosen *mpifind.Library
	for i, lib := range found {
		if lib.Problem != "" {
			d.add(group, filepath.Base(lib.Path), none, lib.Path+": "+lib.Problem, "")
			continue
		}
		if chosen == nil {
			chosen = &found[i]
		}
		r := &report{Path: lib.Path, ABI: lib.Family.String()}
		f := finding{Group: group, State: ok, Value: fmt.Sprintf("%s, ABI of %s", lib.Path, lib.Family), Library: r}
		if command, _, err := mpifind.Mpiexec(lib); err != nil {
			f.State, f.Advice = warn, "its launcher is missing: "+err.Error()
		} else {
			r.Launcher = command
		}
		if !mpiBuilt {
			f.Advice = "not loaded: " + withoutMPI
		} else if inside != nil {
			f.Advice = "not loaded: this is a process of " + inside.String() + ", whose job it would join; run cohort doctor by itself"
		} else if err := r.learn(describeLimit, d.keeper); err != nil {
			f.State, f.Advice = warn, err.Error()
		}
		f.Name = r.title(lib)
		d.all = append(d.all, f)
	}
	if chosen == nil {
		return
	}
	why := "the best fit of those found"
	if asked {
		why = "asked for by COHORT_MPI_LIB"
	} else if len(found) == 1 {
		why = "the only one"
	}
	d.add(group, "first choice", ok, fmt.Sprintf("%s, %s; 'cohort run --backend mpi' uses it, and so do programs with COHORT_BACKEND=mpi and no launcher", chosen.Title(), why), "")
	d.launchers(*chosen, asked, env)
}

// launchers reports whether the mpiexec that a user would run matches the library
// that programs load.
func (d *diagnosis) launchers(lib mpifind.Library, asked bool, env func(string) (string, bool)) {
	const group = "mpi"
	command, family := mpifind.InPath(env)
	name := "mpiexec"
	if command != "" {
		name = filepath.Base(command)
	}
	own, _, err := mpifind.Mpiexec(lib)
	if err != nil {
		own = "the launcher of " + lib.Title()
	}
	start := fmt.Sprintf("start with %s or cohort run --backend mpi", own)
	switch {
	case command == "":
		d.add(group, name, warn, "neither mpiexec nor mpirun is in PATH", start)
	case lib.Fits(family):
		d.add(group, name, ok, fmt.Sprintf("%s belongs to the %s family and matches %s", command, family, lib.Title()), "")
	case asked:
		d.add(group, name, warn, fmt.Sprintf("%s belongs to the %s family, but COHORT_MPI_LIB names %s: programs that it starts will refuse to run", command, family, lib.Title()),
			start+", or unset COHORT_MPI_LIB")
	default:
		d.add(group, name, warn, fmt.Sprintf("%s belongs to the %s family, but %s is found first", command, family, lib.Title()),
			fmt.Sprintf("%s, or set LD_LIBRARY_PATH and PATH to the same installation", start))
	}
}
