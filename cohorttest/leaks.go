package cohorttest

import (
	"os"
	"runtime"
	"strings"
	"time"
)

// openFiles returns how many file descriptors the process has, 0 where the
// system does not say.
func openFiles() int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(d)
}

// pollFiles has the runtime open the descriptors it waits for files with, which
// it does once and keeps.
func pollFiles() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

// sharedMappings returns the lines of /proc/self/maps that are shared memory
// without a file, which is what a backend maps; nothing where the system does
// not say. A backend may keep a mapping for as long as something can reach it,
// so the garbage is collected until it is gone. Open MPI keeps what it maps when
// it starts, from 5.0 on.
func sharedMappings() string {
	own := func() (s string) {
		for line := range strings.Lines(mappings()) {
			if !strings.Contains(line, sharedFolder+"/sm_segment.") {
				s += line
			}
		}
		return s
	}
	s := own()
	for begun := time.Now(); s != "" && time.Since(begun) < 20*time.Second; s = own() {
		runtime.GC()
	}
	return s
}

func mappings() string {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	s := ""
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "/memfd:") || strings.Contains(line, "/dev/shm/") {
			s += line
		}
	}
	return s
}

// settle waits until there are no more than want goroutines and returns how
// many there are then, or after as much time as no goroutine that has been told
// to end can need.
func settle(want int) int { return fall(runtime.NumGoroutine, want) }

// settleFiles does so for descriptors: a file may be open for a moment, of a timer
// that comes late, or of the runtime.
func settleFiles(want int) int { return fall(openFiles, want) }

func fall(count func() int, want int) int {
	for begun := time.Now(); ; runtime.Gosched() {
		n := count()
		if n <= want || time.Since(begun) > 20*time.Second {
			return n
		}
	}
}
