package ranktest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// LimitFiles lowers this process's limit of open files so that it can open only room more.
func LimitFiles(room int) error {
	if r, w, err := os.Pipe(); err == nil { // opens descriptors that the runtime keeps
		r.Close()
		w.Close()
	}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return err
	}
	limit := 0
	for free := 0; ; limit++ {
		if _, err := unix.FcntlInt(uintptr(limit), unix.F_GETFD, 0); err == nil {
			continue
		}
		if free == room {
			break
		}
		free++
	}
	r.Cur = uint64(limit)
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &r)
}

// FewFiles runs this program once for every rank of a job, with environment variables by which it opens the job with
// few files left. Either the job works, or every rank reports what the limit has to be.
func FewFiles(t *testing.T, ranks int, works bool, env func(rank int) []string) {
	t.Helper()
	cmds, out := make([]*exec.Cmd, ranks), make([]strings.Builder, ranks)
	for r := range cmds {
		cmds[r] = exec.Command(os.Args[0])
		cmds[r].Env = append(os.Environ(), env(r)...)
		cmds[r].Stderr = &out[r]
		if err := cmds[r].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for r, cmd := range cmds {
		err, text := cmd.Wait(), out[r].String()
		switch {
		case works && err != nil:
			t.Errorf("rank %d: %v: %s", r, err, text)
		case !works && (err == nil || !strings.Contains(text, "too many open files") || !strings.Contains(text, "raise it with ulimit -n ")):
			t.Errorf("rank %d: %v: %s, want what limit to raise", r, err, text)
		}
	}
}
