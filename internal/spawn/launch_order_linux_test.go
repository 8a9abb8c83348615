package spawn

import (
	"errors"
	"net"
	"os"
	"testing"
)

// TestLaunchPassesBytesThatAreNotText has arguments and a variable that are no text: a rank gets them as they are.
func TestLaunchPassesBytesThatAreNotText(t *testing.T) {
	const odd = "\xff\xfe \u00e4 \xc3("
	cfg := launched(t, 1, "plain", "sh")
	cfg.Path = "/bin/sh"
	cfg.Args = []string{"-c", `printf '%s|%s|%s' "$0" "$1" "$ODD"`, odd, ""}
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
