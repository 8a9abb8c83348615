package budget

import (
	"os"
	"strconv"
	"strings"
)

// resident returns how much memory this process uses (proc_pid_statm(5)), 0 if that is not known.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	f := strings.Fields(string(b))
	if err != nil || len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
