//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// TestCloseIsOrderlyAndFinal checks that a rank leaves without leftovers, and cannot join again.
func TestCloseIsOrderlyAndFinal(t *testing.T) {
	joins("once", func(w *cohort.Comm) error {
		again := func(when string) error {
			x, err := cohort.Init(background, nil)
			if !errors.Is(err, cohort.ErrInit) || !strings.Contains(err.Error(), "before") {
				return fmt.Errorf("Init %s: %v, %v", when, x, err)
			}
			return nil
		}
		must.OK(again("twice"))
		// Communicators that stay open, made in every way.
		must.Get(w.Dup())
		s := must.Get(w.Split(w.Rank()%2, 0))
		must.Get(s.Dup())
		must.Get(w.SplitShared())
		must.OK(traffic(w, 5))
		for range 3 {
			must.OK(w.Close())
		}
		if err := s.Barrier(); !errors.Is(err, cohort.ErrClosed) {
			return fmt.Errorf("a barrier of what the world's Close has closed: %v", err)
		}
		return again("after Close")
	})
	for _, name := range inTurn(t) {
		for _, level := range []string{"multiple", "funneled"} {
			t.Run(name+"/"+level, func(t *testing.T) { start(t, name, 3, "once", "COHORT_MPI_THREAD="+level).must(t) })
		}
	}
}

// lastTool is a tool that registers an exit function in the library's name at MPI_Finalize, as
// MPICH does from 4.2 on. It finds the library's __dso_handle by the relocation to its own address.
const lastTool = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <stdio.h>
extern int __cxa_atexit(void (*)(void *), void *, void *);
static void last(void *unused) { int done; PMPI_Finalized(&done); printf("exit finalized %d\n", done); fflush(stdout); }
int MPI_Finalize(void) {
	Dl_info info;
	struct link_map *lib;
	ElfW(Rela) *rela = NULL;
	size_t size = 0;
	dladdr1((void *)PMPI_Finalize, &info, (void **)&lib, RTLD_DL_LINKMAP);
	for (ElfW(Dyn) *d = lib->l_ld; d->d_tag; d++) {
		if (d->d_tag == DT_RELA) rela = (ElfW(Rela) *)d->d_un.d_ptr;
		if (d->d_tag == DT_RELASZ) size = d->d_un.d_val;
	}
	for (ElfW(Rela) *r = rela; r < rela + size / sizeof *r; r++)
		if (r->r_offset == r->r_addend) __cxa_atexit(last, NULL, (void *)(lib->l_addr + r->r_offset));
	return PMPI_Finalize();
}
`

// TestExitFunctionsRunOnce checks that exit functions which the library has registered are called
// once, after MPI_Finalize: a Go program does not end by the C library's exit.
func TestExitFunctionsRunOnce(t *testing.T) {
	skipShort(t, "ranks that end late are not killed")
	rank("end", func(w *cohort.Comm) error { return traffic(w, 1) })
	for _, level := range []string{"multiple", "funneled"} {
		tool := compiledTool(t, "mpich", lastTool)
		e := start(t, "mpich", 2, "end", "LD_PRELOAD="+tool, "COHORT_MPI_THREAD="+level).must(t)
		if got, want := e.lines("exit"), []string{"finalized 1", "finalized 1"}; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q\n%s", level, got, want, e.out)
		}
	}
}

// orderTool is a tool that prints the communicators that are left at the end, whether MPI begins and
// ends on the same thread, and whether the last call before is a Barrier.
const orderTool = `
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
static int open, thread, met;
int MPI_Init_thread(int *c, char ***v, int want, int *got) { thread = syscall(SYS_gettid); return PMPI_Init_thread(c, v, want, got); }
int MPI_Comm_dup(MPI_Comm c, MPI_Comm *out) { open++; return PMPI_Comm_dup(c, out); }
int MPI_Comm_create_group(MPI_Comm c, MPI_Group g, int tag, MPI_Comm *out) { open++; return PMPI_Comm_create_group(c, g, tag, out); }
int MPI_Comm_split_type(MPI_Comm c, int type, int key, MPI_Info i, MPI_Comm *out) { open++; return PMPI_Comm_split_type(c, type, key, i, out); }
int MPI_Comm_free(MPI_Comm *c) { open--, met = 0; return PMPI_Comm_free(c); }
int MPI_Op_free(MPI_Op *op) { met = 0; return PMPI_Op_free(op); }
int MPI_Barrier(MPI_Comm c) { met = 1; return PMPI_Barrier(c); }
int MPI_Finalize(void) {
	printf("finalize %d %d %d\n", open, thread == (int)syscall(SYS_gettid), met);
	fflush(stdout);
	return PMPI_Finalize();
}
`

// TestCommunicatorsAreFreedBeforeFinalize checks that communicators are freed before MPI is
// finalized, on the thread that initialized it. With MPICH before 4.2 the ranks meet in between.
func TestCommunicatorsAreFreedBeforeFinalize(t *testing.T) {
	skipShort(t, "the order of the calls that end MPI")
	rank("order", func(w *cohort.Comm) error {
		d := must.Get(w.Dup())
		must.Get(d.Split(w.Rank()%2, 0))
		return traffic(w, 3)
	})
	inLibraries(t, func(t *testing.T, name string) {
		tool := compiledTool(t, name, orderTool)
		end := map[string]string{"mpich": "0 1 1", "openmpi": "0 1 0"}[name]
		for _, level := range []string{"multiple", "single"} {
			e := start(t, name, 2, "order", "LD_PRELOAD="+tool, "COHORT_MPI_THREAD="+level).must(t)
			if got := e.lines("finalize"); !slices.Equal(got, []string{end, end}) {
				t.Errorf("%s: at the end: (communicators, same thread, Barrier) %q\n%s", level, got, e.out)
			}
		}
	})
}

// foreignStart is C code that initializes MPI before the program starts, uses it, and finalizes it
// after the program has ended.
const foreignStart = `
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
static int started;
__attribute__((constructor(101))) static void start(void) {
	int got;
	if (!getenv("PMI_RANK") && !getenv("OMPI_COMM_WORLD_RANK")) return; // the launcher has this tool too
	started = PMPI_Init_thread(0, 0, MPI_THREAD_MULTIPLE, &got) == 0;
}
`

// TestForeignInitStaysRunning checks that an MPI that other code has initialized is used and not
// finalized.
func TestForeignInitStaysRunning(t *testing.T) {
	skipShort(t, "MPI initialized by other code")
	program("guest", func() error {
		if err := with(func(w *cohort.Comm) error { return traffic(w, 5) }); err != nil {
			return err
		}
		say("left")
		return nil
	})
	program("finalized", initFails)
	const finalized = `
__attribute__((constructor(102))) static void end(void) {
	if (started) PMPI_Finalize();
}
`
	const counting = `
int MPI_Init_thread(int *c, char ***v, int want, int *got) { puts(started ? "cohort initialized" : "not started"); return PMPI_Init_thread(c, v, want, got); }
int MPI_Finalize(void) { puts("cohort finalized"); return PMPI_Finalize(); }
`
	inLibraries(t, func(t *testing.T, name string) {
		tool := compiledC(t, mpicc(t, name), foreignStart+counting, "foreign.so", "-shared", "-fPIC")
		e := start(t, name, 2, "guest", "LD_PRELOAD="+tool)
		e.hasNot(t, "cohort initialized", "cohort finalized")
		// MPI is not finalized: the launcher decides what that means.
		e.has(t, "left\n")
		ended := compiledC(t, mpicc(t, name), foreignStart+finalized, "ended.so", "-shared", "-fPIC")
		start(t, name, 2, "finalized", "LD_PRELOAD="+ended).must(t).has(t, "refused", "finalized")
	})
}

// files returns the files below a folder.
func files(t *testing.T, folder string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// notesVariable holds the file that note writes to.
const notesVariable = "COHORT_TEST_NOTES"

func note(format string, args ...any) {
	f, err := os.OpenFile(os.Getenv(notesVariable), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(f, format+"\n", args...)
	f.Close()
}

// TestDeadRankEndsJobAndLeavesNothing checks that a job ends if a rank ends without Close, in any
// way, and leaves no rank and no file behind.
func TestDeadRankEndsJobAndLeavesNothing(t *testing.T) {
	skipShort(t, "every way in which a rank can die")
	ways := []struct {
		name string
		end  func() error
		want string
	}{
		{"exit 0", func() error { os.Exit(0); return nil }, ""},
		{"exit 3", func() error { os.Exit(3); return nil }, ""},
		{"panic", func() error { panic("a rank of no use") }, "panic: a rank of no use"},
		{"killed", func() error { syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }, ""},
		{"abort", nil, ""},
	}
	for _, way := range ways {
		joins(way.name, func(w *cohort.Comm) (err error) {
			note("pid %d", os.Getpid())
			if err := w.Barrier(); err != nil {
				return err
			}
			if w.Rank() == 1 {
				note("ends at %d", time.Now().UnixNano())
				if way.end == nil {
					return w.Abort(7)
				}
				return way.end()
			}
			// The launcher ends this rank.
			return second(cohort.Recv(w, make([]int, 1), 1, 0))
		})
	}
	for _, name := range inTurn(t) {
		for _, way := range ways {
			t.Run(name+"/"+way.name, func(t *testing.T) {
				folder, notes := t.TempDir(), filepath.Join(t.TempDir(), "notes")
				cmd := command(t, name, 3, way.name, "TMPDIR="+folder, "OMPI_MCA_btl_vader_backing_directory="+folder, notesVariable+"="+notes)
				e := wait(t, cmd)
				now := time.Now()
				// MPICH's mpiexec takes status 0 for success, and kills the others.
				if e.succeeded() && !(name == "mpich" && way.name == "exit 0") {
					t.Errorf("status 0, want an error\n%s", e.out)
				}
				e.has(t, way.want)
				// The launcher may lose a rank's last output.
				b, err := os.ReadFile(notes)
				if err != nil {
					t.Fatalf("%v\n%s", err, e.out)
				}
				noted := ended{out: string(b)}
				ends := noted.lines("ends at")
				if len(ends) != 1 {
					t.Fatalf("no rank has ended:\n%s", e.out)
				}
				at, err := strconv.ParseInt(ends[0], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("status %d, %v after the rank's end", e.status, now.Sub(time.Unix(0, at)).Round(time.Millisecond))
				for _, pid := range noted.lines("pid") {
					n, err := strconv.Atoi(pid)
					if err != nil {
						t.Fatal(err)
					}
					if gone := lives(n); gone != "" {
						t.Errorf("rank with pid %s is still there: %s", pid, gone)
					}
				}
				if left := files(t, folder); left != nil {
					t.Errorf("left behind: %q", left)
				}
			})
		}
	}
}

// lives waits until a process has ended, and returns its state if it does not.
func lives(pid int) string {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // poll
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(b), ") Z ") || !strings.Contains(string(b), ".test)") {
			return ""
		}
		if time.Now().After(end) {
			return string(b)
		}
	}
}

// TestInitEndsAtDeadline checks that Init ends with its context while a rank is missing.
func TestInitEndsAtDeadline(t *testing.T) {
	skipShort(t, "Init ends at its deadline")
	program("missing", func() error {
		if os.Getenv("PMI_RANK") == "1" || os.Getenv("OMPI_COMM_WORLD_RANK") == "1" {
			return syscall.Pause() // runs and never joins
		}
		ctx, cancel := context.WithTimeout(background, 500*time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err := cohort.Init(ctx, nil)
		took := time.Since(begun)
		if !errors.Is(err, cohort.ErrInit) || !strings.Contains(err.Error(), "deadline exceeded") {
			return fmt.Errorf("Init: %v", err)
		}
		say("ended %v %v", took, err)
		return errors.New("no job")
	})
	inLibraries(t, func(t *testing.T, name string) {
		e := start(t, name, 2, "missing").failed(t, "check that all processes of the job are running")
		t.Logf("%v: %q", e.took, e.lines("ended"))
	})
}

// TestFullSharedMemoryDoesNotHang checks that a library without room in shared memory fails or
// works without it. Mounting another /dev/shm needs root.
func TestFullSharedMemoryDoesNotHang(t *testing.T) {
	skipShort(t, "a full /dev/shm")
	program("small", func() error {
		ctx, cancel := context.WithTimeout(background, patience/2)
		defer cancel()
		w, err := cohort.Init(ctx, nil)
		if err != nil {
			return err
		}
		if err := traffic(w, 5); err != nil {
			return err
		}
		say("works %d", w.Rank())
		return w.Close()
	})
	probe := exec.Command("unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/dev/shm")
	if out, err := probe.CombinedOutput(); err != nil {
		need.MissingRight(t, "a private /dev/shm needs unshare and root: %v %s", err, out)
	}
	inLibraries(t, func(t *testing.T, name string) {
		cmd := command(t, name, 2, "small")
		cmd.Args = append([]string{"unshare", "-m", "sh", "-c", `mount -t tmpfs -o size=64k none /dev/shm && exec "$@"`, "sh"}, cmd.Args...)
		cmd.Path = probe.Path
		e := wait(t, cmd)
		t.Logf("status %d after %v:\n%s", e.status, e.took, e.out)
		if works := len(e.lines("works")); works != 2 && (works != 0 || e.status == 0) {
			t.Errorf("status %d, and %d of 2 ranks work", e.status, works)
		}
	})
}
