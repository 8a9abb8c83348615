package cohorttest

import (
	"os"
	"runtime"
	"strings"
	"time"
)

// openFiles returns the number of open file descriptors of the process, or 0 if the
// system does not report it.
func openFiles() int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(d)
}

// pollFiles makes the runtime open the descriptors with which it polls files. It opens
// them once and keeps them.
func pollFiles() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

// sharedMappings returns the lines of /proc/self/maps that are shared memory of a
// backend, or "" if the system does not report them. A backend may keep a mapping as
// long as it is reachable, so sharedMappings collects the garbage until it is gone. Open
// MPI keeps what it maps at start-up from version 5.0 on; that is left out.
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

// fewGoroutines waits until there are at most want goroutines, for a limited time, and
// returns how many there are.
func fewGoroutines(want int) int { return fall(runtime.NumGoroutine, want) }

// fewFiles does the same for descriptors: a late timer, or the runtime, may have a file
// open for a moment.
func fewFiles(want int) int { return fall(openFiles, want) }

func fall(count func() int, want int) int {
	for begun := time.Now(); ; runtime.Gosched() {
		n := count()
		if n <= want || time.Since(begun) > 20*time.Second {
			return n
		}
	}
}
