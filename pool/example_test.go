package pool_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/cohort-hpc/cohort/pool"
)

// Map returns results in the order of the indices, whichever worker computed them.
func ExampleMap() {
	p, err := pool.New(pool.Config{Threads: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	squares, err := pool.Map(p, 5, func(worker, i int) (int, error) { return i * i, nil })
	fmt.Println(squares, err)
	// Output: [0 1 4 9 16] <nil>
}

// One sum per worker needs no lock, and no memory that workers share.
func ExampleNewLocals() {
	p, err := pool.New(pool.Config{Threads: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	sums, err := pool.NewLocals(p, func(worker int) (*int, error) { return new(int), nil })
	if err != nil {
		log.Fatal(err)
	}
	err = pool.ForEach(p, 101, func(worker, i int) error {
		*sums.At(worker) += i
		return nil
	})
	total := 0
	for _, sum := range sums.All() {
		total += *sum
	}
	fmt.Println(total, err)
	// Output: 5050 <nil>
}

// A task that fails ends the loop, whether by an error or by a panic.
func ExampleTaskError() {
	p, err := pool.New(pool.Config{Threads: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	var none []float64
	err = pool.ForEach(p, 10, func(worker, i int) error {
		if i == 3 {
			none[i] = 1
		}
		return nil
	})
	var failed *pool.TaskError
	if errors.As(err, &failed) {
		fmt.Println(failed.Index, failed.Worker)
		fmt.Println(failed)
	}
	// Output:
	// 3 0
	// task 3 on worker 0: panic: runtime error: index out of range [3] with length 0
}

// A program of many short loops runs them from worker 0.
func ExamplePool_Run() {
	p, err := pool.New(pool.Config{Threads: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	x := []float64{1, 2, 3, 4}
	err = p.Run(func() error {
		for range 10 {
			if err := pool.ForEach(p, len(x), func(worker, i int) error {
				x[i] *= 2
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	fmt.Println(x, err)
	// Output: [1024 2048 3072 4096] <nil>
}

// QuietSolvers keeps what the user has set, and reports it.
func ExampleQuietSolvers() {
	environment := map[string]string{"OMP_NUM_THREADS": "8"}
	settings, err := pool.QuietSolvers(
		func(name string) (string, bool) { v, ok := environment[name]; return v, ok },
		func(name, value string) error { environment[name] = value; return nil },
	)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range settings {
		if s.Differs() {
			fmt.Println(s)
		}
	}
	fmt.Println(environment["OPENBLAS_NUM_THREADS"])
	// Output:
	// OMP_NUM_THREADS=8 (not 1: OpenMP may start its own threads)
	// 1
}
