package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// TestMain runs the program instead of the tests if the environment asks for it.
func TestMain(m *testing.M) {
	if os.Getenv("DDP_PROGRAM") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// trained returns the network after some steps on n ranks of this process, and the losses.
func trained(t *testing.T, n, steps int) (nets []*network, losses []float64) {
	t.Helper()
	points, err := read("spirals.csv")
	if err != nil {
		t.Fatal(err)
	}
	nets = make([]*network, n)
	err = cohort.Run(context.Background(), n, func(w *cohort.Comm) error {
		tr := &training{net: newNetwork()}
		_, err := tr.train(t.Context(), w, points, steps)
		nets[w.Rank()] = tr.net
		if w.Rank() == 0 {
			losses = tr.losses
		}
		return err
	})
	if err != nil {
		t.Fatalf("%d ranks: %v", n, err)
	}
	return nets, losses
}

// The test trains on 1, 2 and 4 ranks. All ranks of a job have the same bits, also in a second run.
// Jobs of different sizes agree to rounding.
func TestTrainingIsReproducible(t *testing.T) {
	const steps = 60
	one, losses := trained(t, 1, steps)
	if losses[steps-1] > 0.9*losses[0] {
		t.Errorf("the loss goes from %g to %g in %d steps", losses[0], losses[steps-1], steps)
	}
	for _, n := range []int{2, 4} {
		nets, l := trained(t, n, steps)
		again, _ := trained(t, n, steps)
		for r := range n {
			if nets[r].digest() != nets[0].digest() || again[r].digest() != nets[0].digest() {
				t.Errorf("%d ranks: the weights of rank %d have other bits than those of rank 0, or the next time", n, r)
			}
		}
		if apart := distance(nets[0], one[0]); apart > 1e-9 {
			t.Errorf("weights on %d ranks and on one are up to %g apart", n, apart)
		}
		for i := range l {
			if math.Abs(l[i]-losses[i]) > 1e-9 {
				t.Fatalf("step %d: the loss is %v on %d ranks, and %v on one", i, l[i], n, losses[i])
			}
		}
	}
}

// A rank ends in the middle of the training, or after the last step. Another one takes its place, and all have the bits of an undisturbed training.
func TestLostRankIsReplaced(t *testing.T) {
	const n, steps = 4, 40
	want, _ := trained(t, n, steps)
	points, err := read("spirals.csv")
	if err != nil {
		t.Fatal(err)
	}
	errDies := errors.New("dies")
	for lost, made := range []int{steps / 2, steps} {
		got := make([]string, n)
		err := cohort.RunWith(t.Context(), n, cohort.RunOptions{Restarts: 1}, func(w *cohort.Comm) error {
			tr := &training{net: newNetwork()}
			if w.Rank() == lost && w.Generation() == 0 {
				return errors.Join(tr.handOver(w), tr.learn(w, points, made), errDies)
			}
			w, err := tr.train(t.Context(), w, points, steps)
			got[w.Rank()] = fmt.Sprint(w.Generation(), " ", tr.net.digest())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for rank, g := range got {
			if w := "1 " + want[0].digest(); g != w {
				t.Errorf("rank %d lost: rank %d ends in generation and with weights %s, want %s", lost, rank, g, w)
			}
		}
	}
}

// distance returns the greatest difference of two networks' weights.
func distance(a, b *network) (most float64) {
	w := b.weights()
	for i, t := range a.weights() {
		for j, x := range t.Data() {
			most = math.Max(most, math.Abs(x-w[i].Data()[j]))
		}
	}
	return most
}

// The gradients are compared with differences of the loss.
func TestGradientsMatchDifferences(t *testing.T) {
	points, err := read("spirals.csv")
	if err != nil {
		t.Fatal(err)
	}
	points = points[:12]
	n := newNetwork()
	var came []int
	if _, err := n.learn(points, func(i int) error { came = append(came, i); return nil }); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(came) != "[0 1 2 3 4 5]" {
		t.Errorf("gradients are ready in the order %v", came)
	}
	loss := func() float64 {
		l, err := n.learn(points, func(int) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	const h = 1e-5
	for _, l := range n.layers {
		for k := range 2 {
			w := l.tensors[weight+k].Data()
			loss() // of the weights as they are
			want := append([]float64(nil), l.tensors[weightGradient+k].Data()...)
			for i := range w {
				old := w[i]
				w[i] = old + h
				up := loss()
				w[i] = old - h
				down := loss()
				w[i] = old
				if got := (up - down) / (2 * h); math.Abs(got-want[i]) > 1e-8 {
					t.Fatalf("the loss changes by %g with a weight, and the gradient is %g", got, want[i])
				}
			}
		}
	}
}

// The test trains on processes over shared memory, twice. The bits are those of as many ranks in
// one process. With more than two ranks they would differ if gradients were added in another order.
func TestProcessesMatchGoroutines(t *testing.T) {
	const steps = 40
	for _, n := range []int{2, 3, 4} {
		nets, losses := trained(t, n, steps)
		if losses[steps-1] > 0.9*losses[0] {
			t.Errorf("%d ranks: the loss goes from %g to %g in %d steps", n, losses[0], losses[steps-1], steps)
		}
		want := fmt.Sprintf("digest is %.16s\n", nets[0].digest())
		for _, run := range []string{"first", "second"} {
			plot := filepath.Join(t.TempDir(), "loss.svg")
			out := processes(t, n, "--data", "spirals.csv", "--steps", fmt.Sprint(steps), "--plot", plot)
			if !strings.HasSuffix(out, want) {
				t.Errorf("%d processes print, the %s time,\n%s\nand goroutines have %s", n, run, out, want)
			}
			text, err := os.ReadFile(plot)
			if err != nil {
				t.Fatal(err)
			}
			checkPlot(t, text, losses)
		}
	}
}

// patience is after how long a program is taken for stuck.
const patience = 4 * time.Minute

// processes runs the program on n processes over shared memory, and returns what rank 0 prints.
func processes(t *testing.T, n int, args ...string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	job := rand.Text()
	out, failed := make([]bytes.Buffer, n), make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		cmd := exec.CommandContext(ctx, exe, args...)
		cmd.WaitDelay = 10 * time.Second
		cmd.Env = append(os.Environ(), "DDP_PROGRAM=1", "COHORT_BACKEND=shm", "COHORT_JOB="+job,
			fmt.Sprintf("COHORT_SIZE=%d", n), fmt.Sprintf("COHORT_RANK=%d", r))
		cmd.Stdout, cmd.Stderr = &out[r], &out[r]
		all.Go(func() { failed[r] = cmd.Run() })
	}
	all.Wait()
	for r := range n {
		if failed[r] != nil {
			t.Fatalf("rank %d of %d: %v\n%s", r, n, failed[r], &out[r])
		}
	}
	return out[0].String()
}

// The test passes files that contain no points.
func TestBadDataIsRejected(t *testing.T) {
	long := "x,y,class\n" + strings.Repeat("1,2,0\n", batch)
	for text, want := range map[string]string{
		"":                                "0 lines",
		"x,y,class\n1,2,0\n":              "2 lines",
		long + "1,2\n":                    "wrong number of fields",
		long + "1,2,3\n":                  fmt.Sprintf(":%d: ", batch+2),
		strings.Replace(long, "1", "", 1): ":2: ",
	} {
		path := filepath.Join(t.TempDir(), "points.csv")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := read(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%.20q…: %v, want something of %q", text, err, want)
		}
	}
	if _, err := read("nowhere.csv"); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("a file that does not exist: %v", err)
	}
}
