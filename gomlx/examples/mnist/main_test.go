package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/gomlx/pkg/core/tensors"
)

// TestMain runs the program instead of the tests if the environment asks for it.
func TestMain(m *testing.M) {
	if os.Getenv("MNIST_PROGRAM") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The files have 60000 and 10000 images. The first of the test set is a 7: dark at the top, and nothing at its lower left.
func TestLoadFindsKnownImages(t *testing.T) {
	training, test, err := load("", 240)
	if err != nil {
		t.Fatal(err)
	}
	if len(training.order) != 60000 || len(test.order) != 10000 {
		t.Errorf("%d and %d images", len(training.order), len(test.order))
	}
	_, inputs, labels, err := test.Yield()
	if err != nil {
		t.Fatal(err)
	}
	pixels, digits := tensors.MustCopyFlatData[float32](inputs[0]), tensors.MustCopyFlatData[int32](labels[0])
	sum := func(row, from, to int) (s float32) {
		for i := from; i < to; i++ {
			s += pixels[row*side+i]
		}
		return s
	}
	if digits[0] != 7 || sum(4, 3, 10) < 2 || sum(10, 0, 4) > 0.5 {
		t.Errorf("the first image is a %d with pixels %v", digits[0], pixels[:side*side])
	}
	if _, _, err := load(t.TempDir(), 240); err == nil {
		t.Error("a folder without files is no error")
	}
}

// Two processes learn at least 97.5 % of the test set within five minutes, and write the loss of each step.
func TestTwoRanksLearn(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for minutes")
	}
	curve := filepath.Join(t.TempDir(), "loss.csv")
	out := processes(t, 2, "--curve", curve)
	took, best := 0.0, 0.0 // until the first epoch that ends with enough
	for _, line := range regexp.MustCompile(`steps in ([0-9.]+) s, .* ([0-9.]+) % of the test set`).FindAllStringSubmatch(out, -1) {
		seconds, _ := strconv.ParseFloat(line[1], 64)
		share, _ := strconv.ParseFloat(line[2], 64)
		if best < 97.5 {
			took += seconds
		}
		best = max(best, share)
	}
	if best < 97.5 || took > 300 {
		t.Errorf("%v %% of the test set, %v s:\n%s", best, took, out)
	}
	text, err := os.ReadFile(curve)
	if steps := strings.Count(string(text), "\n") - 1; err != nil || steps != *epochs*60000 / *rows {
		t.Errorf("the curve has %d steps, %v", steps, err)
	}
}

// With --exact the losses of all steps have the same bits on 1, 2 and 4 ranks.
func TestLossCurveDoesNotDependOnRanks(t *testing.T) {
	folder := firstImages(t, 1200)
	var one []byte
	for _, n := range []int{1, 2, 4} {
		curve := filepath.Join(t.TempDir(), "loss.csv")
		processes(t, n, "--data", folder, "--epochs", "1", "--micro", "60", "--exact", "--curve", curve)
		text, err := os.ReadFile(curve)
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			one = text
		}
		if steps := bytes.Count(text, []byte("\n")) - 1; steps != 5 || !bytes.Equal(text, one) {
			t.Errorf("%d ranks: %d steps, want 5 and the losses of one rank:\n%s\none rank:\n%s", n, steps, text, one)
		}
	}
}

// firstImages returns a folder with files of MNIST that have the first n images of each set.
func firstImages(t *testing.T, n uint32) string {
	t.Helper()
	from, err := files()
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join(from, "*.gz"))
	if err != nil || len(all) != 4 {
		t.Fatalf("%v, %v; want four files", all, err)
	}
	to := t.TempDir()
	for _, name := range all {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		unzipped, err := gzip.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		size := 8 + n // of labels: two numbers, and a byte for each
		if strings.Contains(name, "images") {
			size = 16 + n*4*side*side
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(unzipped, data); err != nil {
			t.Fatal(err)
		}
		file.Close()
		binary.BigEndian.PutUint32(data[4:], n)
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		w.Write(data)
		w.Close()
		if err := os.WriteFile(filepath.Join(to, filepath.Base(name)), zipped.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// processes runs the program on n processes over shared memory, and returns what rank 0 prints.
func processes(t *testing.T, n int, args ...string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	job := rand.Text()
	out, failed := make([]bytes.Buffer, n), make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		cmd := exec.CommandContext(ctx, exe, args...)
		cmd.WaitDelay = 10 * time.Second
		cmd.Env = append(os.Environ(), "MNIST_PROGRAM=1", "COHORT_BACKEND=shm", "COHORT_JOB="+job,
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
