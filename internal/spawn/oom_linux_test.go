package spawn

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

func init() { programs["eat"] = eatProgram }

// eatProgram has rank 1 use memory until it is killed.
func eatProgram([]string) {
	var all [][]byte
	for me() == "1" {
		all = append(all, bytes.Repeat([]byte{1}, 1<<20))
	}
	time.Sleep(time.Hour) // on purpose: it runs until it is killed
	runtime.KeepAlive(all)
}

// TestKilledForLackOfMemory runs a job in a control group of its own with a limit.
func TestKilledForLackOfMemory(t *testing.T) {
	limit, group := memoryGroup(t)
	cmd, _, stderr := launcher(t, 2, "eat")
	cmd.Args = append([]string{"sh", "-c", "echo $$ >" + group + "/cgroup.procs && exec \"$0\" \"$@\"", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	begin(t, cmd)
	cmd.Wait()
	want := fmt.Sprintf("cohort: rank 1 was killed by signal 9 (killed) because the memory limit of its control group, %d MiB, was reached, after ", limit>>20)
	if got := cmd.ProcessState.ExitCode(); got != 137 || !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("status %d, stderr:\n%s\nwant 137 and %s", got, stderr, want)
	}
}

// memoryGroup creates a control group with a limit of memory, beside or below that of this process.
func memoryGroup(t *testing.T) (limit int, group string) {
	t.Helper()
	limit = 300 << 20
	for _, file := range []string{"/sys/fs/cgroup/memory/%s/memory.limit_in_bytes", "/sys/fs/cgroup/%s/memory.max"} {
		file = fmt.Sprintf(file, fmt.Sprint("cohort-test-", os.Getpid()))
		group = filepath.Dir(file)
		if os.Mkdir(group, 0o700) != nil {
			continue
		}
		t.Cleanup(func() {
			for end := time.Now().Add(patience); os.Remove(group) != nil && time.Now().Before(end); { // until its processes are gone
				time.Sleep(10 * time.Millisecond) // poll
			}
		})
		if f, err := os.OpenFile(file, os.O_WRONLY, 0); err == nil { // it exists if this is a control group
			_, err = f.WriteString(strconv.Itoa(limit))
			if f.Close(); err == nil {
				return limit, group
			}
		}
	}
	need.MissingRight(t, "a control group with a limit of memory cannot be created below /sys/fs/cgroup, which takes root")
	return 0, ""
}

func TestOOMKillsAreThoseOfTheProcessesGroup(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"version 2": {
			"proc/self/cgroup":                   "0::/jobs/7\n",
			"sys/fs/cgroup/jobs/7/memory.events": "low 1\noom 9\noom_kill 3\noom_group_kill 8\n",
			"sys/fs/cgroup/jobs/memory.events":   "oom_kill 70",
			"sys/fs/cgroup/memory.events":        "oom_kill 70",
		},
		"version 1": {
			"proc/self/cgroup": "5:memory:/job\n4:cpu:/job\n0::/\n",
			"sys/fs/cgroup/memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
		},
		"version 1, in a container": {
			"proc/self/cgroup":                        "5:memory:/docker/1f2e\n",
			"sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
		},
	} {
		all := fstest.MapFS{}
		for name, content := range files {
			all[name] = &fstest.MapFile{Data: []byte(content)}
		}
		if got := oomKills(all); got != 3 {
			t.Errorf("%s: %d, want 3", name, got)
		}
	}
	if got := oomKills(fstest.MapFS{}); got != 0 {
		t.Errorf("no control groups: %d", got)
	}
}
