package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// A job grows and shrinks while its ranks work. Those that leave end without an error.
func TestJobGrowsAndShrinksAtWork(t *testing.T) {
	for _, where := range []string{"shm", "tcp", "hosts"} {
		t.Run(where, func(t *testing.T) {
			args := []string{"--backend", where}
			if where == "hosts" {
				if testing.Short() {
					t.Skip("left out with -short: an sshd and ten processes; make test-all runs it")
				}
				n := newNetwork(t)
				defer n.nothingLeft(t)
				args = []string{n.ssh, "--hosts", "127.0.0.1,127.0.0.2"}
			}
			j := startElastic(t, append([]string{"-n", "2", "--elastic", "1:4"}, args...)...)
			g, _ := j.await(-1, 2)
			name := j.name(1, 4)
			for _, n := range []int{4, 3, 1, 4} {
				if status, text := j.scale(name, strconv.Itoa(n)); status != 0 || text != fmt.Sprintf("job %s is asked to have %d ranks\n", name, n) {
					t.Errorf("to %d ranks: status %d, %q", n, status, text)
				}
				g, _ = j.await(g, n)
			}
			if status, text := j.scale(name, "5"); status != 1 || !strings.Contains(text, "job "+name+": 5 ranks: the job can have 1 to 4") {
				t.Errorf("status %d, %q", status, text)
			}
			if status, text := j.scale("none", "2"); status != 1 || !strings.Contains(text, "job none: not found; ") {
				t.Errorf("status %d, %q", status, text)
			}
			text := j.end(4)
			if n := strings.Count(text, "] leaves\n"); n != 3 {
				t.Errorf("%d ranks have left, want 3:\n%s", n, text)
			}
			if status, text := j.scale(name, "2"); status != 1 || !strings.Contains(text, "not found") {
				t.Errorf("after the end: status %d, %q", status, text)
			}
		})
	}
}
