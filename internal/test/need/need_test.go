//go:build unix

package need

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const (
	variable = "COHORT_REQUIRE_TOOLS"
	child    = "NEED_TEST_USER" // marks the processes in which tests end, and says whose they become
	wentOn   = "the test went on"
	nobody   = 65534
)

// TestMissingToolSkipsOrFails has tests end in processes of their own, of this user and, if that is root, of another, and
// looks at what comes of them.
func TestMissingToolSkipsOrFails(t *testing.T) {
	for _, c := range []struct {
		name       string
		test       func(t *testing.T)
		says       string
		root, user string // what comes of it if nothing may be missing
	}{
		{"missing", func(t *testing.T) { Missing(t, "no %s: %d", "thing", 7) }, "no thing: 7\n", "FAIL", "FAIL"},
		{"right", func(t *testing.T) { MissingRight(t, "no %s: %d", "right", 7) }, "no right: 7\n", "FAIL", "SKIP"},
		{"program", func(t *testing.T) { Program(t, "no-such-program") }, "needs no-such-program; scripts/setup", "FAIL", "FAIL"},
		{"there", func(t *testing.T) { Program(t, "sh") }, wentOn, "PASS", "PASS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if user := os.Getenv(child); user != "" {
				become(t, user)
				c.test(t)
				t.Log(wentOn)
				return
			}
			for _, value := range []string{"", "0", "1"} {
				for _, uid := range users() {
					want := "SKIP"
					switch {
					case c.says == wentOn:
						want = "PASS"
					case value == "1" && uid == 0:
						want = c.root
					case value == "1":
						want = c.user
					}
					out, status := again(t, variable+"="+value, fmt.Sprintf("%s=%d", child, uid))
					if !strings.Contains(out, "--- "+want+": "+t.Name()+" ") || !strings.Contains(out, c.says) ||
						strings.Contains(out, wentOn) != (want == "PASS") || (status != 0) != (want == "FAIL") {
						t.Errorf("user %d, %s=%s: status %d, want %s with %q\n%s", uid, variable, value, status, want, c.says, out)
					}
				}
			}
		})
	}
}

// users returns whom this process can be.
func users() []int {
	if os.Geteuid() == 0 {
		return []int{0, nobody}
	}
	return []int{os.Geteuid()}
}

// become makes this process one of a user.
func become(t *testing.T, user string) {
	t.Helper()
	uid, err := strconv.Atoi(user)
	if err == nil && uid != os.Geteuid() {
		err = syscall.Setuid(uid)
	}
	if err != nil || os.Geteuid() != uid {
		t.Fatalf("user %d is not user %q: %v", os.Geteuid(), user, err)
	}
}

// again runs a test in a process of its own, and returns what it says and its status.
func again(t *testing.T, env ...string) (string, int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.v", "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...) // else a second each with -race
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
