package spawn

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/test/denied"
	"github.com/cohort-hpc/cohort/topo"
)

func init() { programs["denied"] = deniedProgram }

// TestLaunchPassesBytesThatAreNotText has arguments and a variable that are no text: a rank gets them as they are.
func TestLaunchPassesBytesThatAreNotText(t *testing.T) {
	const odd = "\xff\xfe \u00e4 \xc3("
	cfg := launched(t, 1, "plain", "sh")
	cfg.Programs[0].Path = "/bin/sh"
	cfg.Programs[0].Args = []string{"-c", `printf '%s|%s|%s' "$0" "$1" "$ODD"`, odd, ""}
	cfg.Launch.Env = append(cfg.Launch.Env, "ODD="+odd)
	r := wait(t, start(t, cfg))
	if said := cfg.Stdout.(*buffer).String(); r.Status != 0 || said != "[0] "+odd+"||"+odd+"\n" {
		t.Errorf("%+v: %q; stderr:\n%s", r, said, cfg.Stderr)
	}
}

// TestHelloAfterEndIsClosed has processes connect to a job that has ended: none of their connections stays open.
func TestHelloAfterEndIsClosed(t *testing.T) {
	cfg := launched(t, 2, "plain", "exit", "0=0", "1=0")
	j := start(t, cfg)
	wait(t, j)
	for range 64 {
		l := starter{}
		address, err := l.listenForRanks()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer l.listen.Close()
			if c, err := l.listen.Accept(); err == nil {
				j.greet(c.(*net.UnixConn))
			}
		}()
		if _, _, err := ask(address, 0, 2); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a job that has ended answers %v, want a closed connection", err)
		}
	}
}

// deniedProgram starts two ranks to be bound where a container's rules forbid it.
func deniedProgram([]string) {
	if err := denied.Syscall(unix.SYS_SCHED_SETAFFINITY); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Setenv(envProgram, "exit")
	exe, _ := os.Executable()
	j, err := Start(Config{Programs: Programs{{exe, []string{"0=0", "1=0"}, 2}}, Places: []topo.CPUSet{allowed()[:1], allowed()[:1]}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(j.Wait().Status)
}

func TestDeniedBindingIsSaidOnce(t *testing.T) {
	cmd, stdout, stderr := launcher(t, 2, "")
	cmd.Env = append(os.Environ(), envProgram+"=denied")
	err := cmd.Run()
	if text := stderr.String(); err != nil || strings.Count(text, "cohort: ranks are not bound to processors: operation not permitted\n") != 1 {
		t.Errorf("%v: %s%s", err, stdout, text)
	}
}
