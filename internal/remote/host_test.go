//go:build unix

package remote

import (
	"bufio"
	"context"
	"encoding/gob"
	"io"
	"strings"
	"testing"
	"time"
)

// TestHostThatWaitsForOthersIsNotGivenUp has an agent that sends pings for a long time before its frames are needed: it is
// given up only when it sends nothing.
func TestHostThatWaitsForOthersIsNotGivenUp(t *testing.T) {
	r, w := io.Pipe()
	h := &host{shell: &shell{r: bufio.NewReader(r), ended: make(chan struct{})}, link: newLink(closer{io.Discard})}
	close(h.shell.ended) // nothing is there that could be killed, and check is called here alone
	h.in = gob.NewDecoder(h)
	closed := make(chan struct{})
	h.attend(closed)
	defer w.Close()
	defer h.link.close()
	defer close(closed)
	to := gob.NewEncoder(w)
	say := func(k kind) {
		t.Helper()
		if err := to.Encode(message{Kind: k}); err != nil { // comes back when it is read
			t.Fatal(err)
		}
	}
	for i := range 4 * silence {
		say(kindPing)
		if !h.check() {
			t.Fatalf("given up after %d words", i+1)
		}
	}
	say(kindEnded)
	if e := h.next(); e.Kind != kindEnded || e.err != nil {
		t.Fatalf("%q, %v", e.Kind, e.err)
	}
	checks := 1
	for h.check() {
		checks++
	}
	if checks != silence+1 || !h.givenUp.Load() {
		t.Errorf("given up by check %d of silence, want %d", checks, silence+1)
	}
}

// TestSilentHostIsGivenUp has hosts that fall silent before there is an agent, at every step.
func TestSilentHostIsGivenUp(t *testing.T) {
	before := shellLimit
	defer func() { shellLimit = before }()
	exe, err := ownExecutable()
	if err != nil {
		t.Fatal(err)
	}
	defer exe.open.Close()
	for _, c := range []struct{ name, script, message string }{
		{"nothing", "", "its login shell did not answer within "},
		{"a question", "printf 'Continue? ';", `unexpected output of the login shell: "Continue?", and nothing more within `},
		{"no request", "echo '" + bootLine + "';", "the agent did not start within "},
		{"file not taken", "echo '" + bootLine + "'; echo " + sendLine + ";", "the agent did not start within "},
		{"file taken", "echo '" + bootLine + "'; echo " + sendLine + "; cat >/dev/null;", "the agent did not start within "},
		{"half a word", "echo '" + bootLine + "'; echo " + agentLine + "; printf h;", "the agent did not start within "},
	} {
		for shellLimit = 100 * time.Millisecond; ; shellLimit *= 4 { // a slow machine gets there with more
			j := &launcher{cfg: Config{SSH: []string{"sh", "-c", c.script + "exec sleep 1000"}, Copy: true}, closed: make(chan struct{})}
			j.hosts = []*host{{Host: Host{Name: "a"}}}
			err := j.connect(context.Background(), j.hosts[0], exe)
			j.close()
			if err != nil && strings.Contains(err.Error(), c.message+shellLimit.String()) {
				break
			}
			if shellLimit > 10*time.Second {
				t.Errorf("%s: %v, want %q", c.name, err, c.message)
				break
			}
		}
	}
}
