//go:build unix

package need

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// TestEnd has tests end in processes of their own, of this user and, if that is root, of another, and
// looks at what comes of them.
func TestEnd(t *testing.T) {
	for _, c := range []struct {
		name       string
		test       func(t *testing.T)
		says       string
		root, user string // what comes of it if nothing may be missing
	}{
		{"missing", func(t *testing.T) { Missing(t, "no %s: %d", "thing", 7) }, "no thing: 7\n", "FAIL", "FAIL"},
		{"right", func(t *testing.T) { MissingRight(t, "no %s: %d", "right", 7) }, "no right: 7\n", "FAIL", "SKIP"},
		{"program", func(t *testing.T) { Program(t, "no-such-program") }, "needs no-such-program\n", "FAIL", "FAIL"},
		{"package", func(t *testing.T) { t.Setenv("PATH", ""); Program(t, "glpsol") }, "needs glpsol: apt-get install glpk-utils\n", "FAIL", "FAIL"},
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

// A program of the PATH comes before a daemon of its name, and daemons are found without it.
func TestProgram_Where(t *testing.T) {
	const daemons = "/usr/sbin"
	t.Setenv("PATH", t.TempDir())
	entries, err := os.ReadDir(daemons)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(entries, func(e os.DirEntry) bool {
		_, err := exec.LookPath(filepath.Join(daemons, e.Name()))
		return err == nil
	})
	if i < 0 {
		t.Skipf("there is no program in %s", daemons)
	}
	name := entries[i].Name()
	if got, want := Program(t, name), filepath.Join(daemons, name); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	mine := filepath.Join(os.Getenv("PATH"), name)
	if err := os.WriteFile(mine, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := Program(t, name); got != mine {
		t.Errorf("got %q, want %q", got, mine)
	}
}

// scripts/setup installs the packages, so that what it has installed is what Required says.
func TestPackages_Setup(t *testing.T) {
	script, err := os.ReadFile("../../../scripts/setup")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^packages=\((.*)\)$`).FindSubmatch(script)
	if list == nil {
		t.Fatal("scripts/setup has no list of packages: is the search right?")
	}
	installed := strings.Fields(string(list[1]))
	for program, names := range packages {
		for _, name := range strings.Fields(names) {
			if program != "gcc" && !slices.Contains(installed, name) {
				t.Errorf("%s is in %s, which scripts/setup does not install: %v", program, name, installed)
			}
		}
	}
}

// On Debian the system itself says which package a program that is there is of.
func TestPackages_Debian(t *testing.T) {
	query, err := exec.LookPath("dpkg-query")
	if err != nil {
		t.Skip("there is no dpkg-query of Debian, which knows what package a program is of")
	}
	program := make(map[string]string) // by path
	for name := range packages {
		path, err := exec.LookPath(name)
		if err != nil {
			path = filepath.Join("/usr/sbin", name)
		}
		program[path] = name
	}
	// It fails if it does not know all of them: a program that is missing, or a link that the administrator made.
	out, _ := exec.Command(query, append([]string{"-S"}, slices.Collect(maps.Keys(program))...)...).Output()
	known := 0
	for line := range strings.Lines(string(out)) {
		owner, path, _ := strings.Cut(strings.TrimSpace(line), ": ")
		name, ok := program[path]
		if !ok {
			continue // of a diversion
		}
		known++
		if owner, _, _ = strings.Cut(owner, ":"); !slices.Contains(strings.Fields(packages[name]), owner) {
			t.Errorf("%s is in %s: got %q", name, owner, packages[name])
		}
	}
	if known == 0 {
		t.Skipf("none of %d programs is of a package here", len(packages))
	}
	t.Logf("%d of %d programs are of a package here", known, len(packages))
}
