package shm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// The tests of this package run programs of several processes: the test binary
// starts itself again, once for each rank, with the name of a program below.
var programs = map[string]func(c backend.Comm) error{}

func TestMain(m *testing.M) {
	name := os.Getenv("SHM_TEST_PROGRAM")
	if name == "" {
		os.Exit(m.Run())
	}
	rank, _ := strconv.Atoi(os.Getenv("SHM_TEST_RANK"))
	size, _ := strconv.Atoi(os.Getenv("SHM_TEST_SIZE"))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := Open(ctx, Config{Rank: rank, Size: size, Job: os.Getenv("SHM_TEST_JOB")})
	if err == nil {
		err = programs[name](c)
		c.Close()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", rank, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var jobs int

// launch runs a program on n ranks and returns the first error.
func launch(t testing.TB, name string, n int) {
	t.Helper()
	jobs++
	job := fmt.Sprintf("%d-%d-%s", os.Getpid(), jobs, t.Name())
	cmds := make([]*exec.Cmd, n)
	for r := range cmds {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "SHM_TEST_PROGRAM="+name, "SHM_TEST_JOB="+job,
			fmt.Sprintf("SHM_TEST_RANK=%d", r), fmt.Sprintf("SHM_TEST_SIZE=%d", n))
		c.Stderr, c.Stdout = os.Stderr, os.Stdout
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		cmds[r] = c
	}
	for r, c := range cmds {
		if err := c.Wait(); err != nil {
			t.Errorf("rank %d of %s: %v", r, name, err)
		}
	}
}

func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + seed*13 + i>>8)
	}
}

func init() {
	programs["pingpong"] = func(c backend.Comm) error {
		for _, n := range []int{0, 1, 8, 44, 45, 64, 1000, 4096, 16384, 16385, 65536, 1 << 20, 4<<20 + 13} {
			send, recv := make([]byte, n), make([]byte, n+16)
			for i := range 20 {
				if c.Rank() == 0 {
					pattern(send, i)
					if err := c.Send(nil, send, 1, i, backend.Standard); err != nil {
						return err
					}
				}
				if c.Rank() < 2 {
					st, err := c.Recv(nil, recv, 1-c.Rank(), i)
					if err != nil || st.Bytes != n || st.Source != 1-c.Rank() || st.Tag != i {
						return fmt.Errorf("%d bytes: %v %v", n, st, err)
					}
					pattern(send, i)
					if string(recv[:n]) != string(send) || string(recv[n:]) != string(make([]byte, 16)) {
						return fmt.Errorf("%d bytes: wrong data", n)
					}
				}
				if c.Rank() == 1 {
					if err := c.Send(nil, recv[:n], 0, i, backend.Synchronous); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	programs["latency"] = func(c backend.Comm) error {
		for _, n := range []int{8, 64, 256, 1024, 8192, 65536, 4 << 20} {
			buf := make([]byte, n)
			iters := 200000
			if n > 1024 {
				iters = 20000
			}
			if n > 100000 {
				iters = 200
			}
			for range 3 {
				t := time.Now()
				for range iters {
					if c.Rank() == 0 {
						c.Send(nil, buf, 1, 1, backend.Standard)
						c.Recv(nil, buf, 1, 1)
					} else {
						c.Recv(nil, buf, 0, 1)
						c.Send(nil, buf, 0, 1, backend.Standard)
					}
				}
				if c.Rank() == 0 {
					fmt.Printf("%d bytes: %.4f us\n", n, float64(time.Since(t).Nanoseconds())/float64(iters)/2e3)
				}
			}
		}
		return nil
	}
}

func TestPingPong(t *testing.T) { launch(t, "pingpong", 2) }
func TestLatency(t *testing.T)  { launch(t, "latency", 2) }
