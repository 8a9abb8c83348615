package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// TestKilledDoctorLeavesNoProcess ends the doctor while a library hangs that a process of its own has loaded, and while the
// launcher of a library does that was to start a job: nothing of either is left.
func TestKilledDoctorLeavesNoProcess(t *testing.T) {
	if !mpiBuilt {
		t.Skip("the mpi backend is not in this build (tag cohort_nompi, or no cgo)")
	}
	gcc := need.Program(t, "gcc")
	const hangs = `#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void f(void) {
	FILE *fifo = fopen(FIFO, "w");
	fprintf(fifo, "%d\n", (int)getpid());
	fclose(fifo);
	for (;;) pause();
}
`
	type hang struct {
		name, library string
		signal        syscall.Signal
	}
	for _, c := range sample([]hang{
		{"library", hangs, syscall.SIGINT}, {"library", hangs, syscall.SIGKILL}, {"launcher", "", syscall.SIGINT}, {"launcher", "", syscall.SIGKILL},
	}, 1, 2) {
		dir, tmp := t.TempDir(), t.TempDir()
		fifo, source, library := filepath.Join(dir, "fifo"), filepath.Join(dir, "lib.c"), filepath.Join(dir, "libmpi.so.40")
		err := syscall.Mkfifo(fifo, 0o600)
		if err == nil {
			err = os.WriteFile(source, []byte("int MPI_Init(void) { return 0; }\nint ompi_mpi_comm_self;\n"+c.library), 0o600)
		}
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, "bin"), 0o700)
		}
		if err == nil {
			const script = "#!/bin/sh\necho $$ $OMPI_MCA_btl_vader_backing_directory > FIFO\nexec sleep 1000\n"
			err = os.WriteFile(filepath.Join(dir, "bin", "orterun"), []byte(strings.ReplaceAll(script, "FIFO", fifo)), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(gcc, "-shared", "-fPIC", `-DFIFO="`+fifo+`"`, "-Wl,-soname,libmpi.so.40", "-o", library, source).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		cmd := cohortCommand(t, "doctor")
		cmd.Env = append(cmd.Env, "TMPDIR="+tmp, "COHORT_MPI_LIB="+library)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		watch(t, cmd)
		dog := time.AfterFunc(patience, func() { // who opens it ends the wait
			if f, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				f.Close()
			}
		})
		said, err := os.ReadFile(fifo) // waits for what hangs
		dog.Stop()
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(string(said))
		if want := map[string]int{"library": 1, "launcher": 2}[c.name]; len(words) != want {
			t.Fatalf("%s said %q, want %d words", c.name, said, want)
		}
		pid, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		life := hold(t, pid)
		cmd.Process.Signal(c.signal)
		awaitEnd(t, "what hangs", life)
		cmd.Wait()
		for _, folder := range append(words[1:], tmp+"/*") {
			for begun := time.Now(); ; runtime.Gosched() { // the keeper may be at it still
				left, _ := filepath.Glob(folder)
				if len(left) == 0 {
					break
				}
				if time.Since(begun) > patience {
					t.Fatalf("%s, %v: left behind: %v", c.name, c.signal, left)
				}
			}
		}
	}
}
