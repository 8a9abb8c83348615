package cohorttest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/leak"
)

// resources counts what a process holds.
type resources struct {
	goroutines int
	files      int
}

func snapshot() resources { return resources{runtime.NumGoroutine(), leak.Files()} }

// left describes what the process holds more of than before, and is "" if there is
// nothing. It gives goroutines that are about to end the time to do so.
func (before resources) left() (s string) {
	if err := leak.Above("goroutines", runtime.NumGoroutine, before.goroutines); err != nil {
		buf := make([]byte, 1<<20)
		s = fmt.Sprintf("%v:\n%s\n", err, buf[:runtime.Stack(buf, true)])
	}
	if err := leak.Above("open files", leak.Files, before.files); err != nil {
		s += err.Error() + "\n"
	}
	return s
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
