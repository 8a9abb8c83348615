package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// ringTests are environments in which frames go through rings: so short that every long message goes
// around many times, and as long as they usually are, with waiters that spin and with those that
// sleep; and those in which long messages are read from where they are.
var ringTests = [][]string{
	{"TCP_TEST_RING=4096"},
	{"TCP_TEST_RING=4096", "TCP_TEST_CROWDED=1"},
	{"TCP_TEST_RING=1048576", "TCP_TEST_CROWDED=1"},
	{"TCP_TEST_RING=4096", "TCP_TEST_EXPOSE=1", "TCP_TEST_CROWDED=1"},
}

func TestRingsCarryAllKindsOfMessages(t *testing.T) {
	sizes, envs := []int{2, 3, 7}, ringTests // 7: progress asks the system first where there are sockets
	if testing.Short() {
		sizes, envs = []int{3}, [][]string{ringTests[0], ringTests[3]} // spinning and sleeping waiters, exposed messages
	}
	for _, env := range envs {
		for _, n := range sizes {
			launch(t, "all", n, env...)
		}
		launch(t, "withdraw", 2, env...)
	}
}

func TestRingCallsAllocateNothing(t *testing.T) {
	launch(t, "allocs", 2, "TCP_TEST_RING=65536", "TCP_TEST_HEARTBEAT=-1s")
}

const killLength = 300000

func init() {
	// Rank 1 sends numbered messages, and is killed while it does. Rank 0 gets some of the first of
	// them, each as it was sent, and then learns that rank 1 is gone.
	programs["killed"] = func(c backend.Comm) error {
		b := &backend.Bound{Timeout: time.Minute}
		at, _ := strconv.Atoi(os.Getenv("TCP_TEST_KILL_AT"))
		buf := make([]byte, killLength)
		if c.Rank() == 1 {
			begun := make(chan struct{})
			go func() {
				<-begun
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}()
			for i := 0; ; i++ {
				if i == at {
					close(begun)
				}
				must.OK(c.Send(b, ranktest.Fill(buf, i)[:lengths[i%len(lengths)]%killLength], 0, 1, backend.Standard))
			}
		}
		want := make([]byte, killLength)
		for i := 0; ; i++ {
			st, err := c.Recv(b, buf, 1, 1)
			if errors.Is(err, backend.ErrPeerLost) {
				if i < at {
					return fmt.Errorf("%d messages have come, and rank 1 sent %d at least", i, at)
				}
				return nil
			}
			if err != nil {
				return err
			}
			if n := lengths[i%len(lengths)] % killLength; st.Bytes != n || !bytes.Equal(buf[:n], ranktest.Fill(want, i)[:n]) {
				return fmt.Errorf("message %d is another one, or damaged", i)
			}
		}
	}
}

func TestKilledRankIsLostInSharedMemory(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 5
	}
	for at := 0; at < 12; at += step {
		for _, env := range append(ringTests, []string{}) {
			errs := run(t, "killed", 2, append(env[:len(env):len(env)], fmt.Sprintf("TCP_TEST_KILL_AT=%d", at*5))...)
			if errs[0] != nil {
				t.Errorf("%v, killed at %d: %v", env, at*5, errs[0])
			}
			var end *exec.ExitError
			if !errors.As(errs[1], &end) || end.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Errorf("%v: rank 1 was to be killed, and ended with %v", env, errs[1])
			}
		}
	}
}
