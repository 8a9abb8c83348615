package values_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/values"
)

// four runs a function on four ranks in this process.
func four(body func(world *cohort.Comm) error) {
	if err := cohort.Run(context.Background(), 4, body); err != nil {
		fmt.Println(err)
	}
}

// Rank 0 reads the configuration.
func ExampleBcast() {
	type Config struct {
		Title  string
		Limits map[string]float64
	}
	four(func(world *cohort.Comm) error {
		var cfg Config
		if world.Rank() == 0 {
			cfg = Config{"plate", map[string]float64{"left": 100, "right": 20}}
		}
		cfg, err := values.Bcast(world, cfg, 0)
		if err == nil && world.Rank() == 3 {
			fmt.Println(cfg.Title, cfg.Limits)
		}
		return err
	})
	// Output:
	// plate map[left:100 right:20]
}

func ExampleSend() {
	four(func(world *cohort.Comm) error {
		switch world.Rank() {
		case 1:
			return values.Send(world, []string{"a list", "of words"}, 2, 0)
		case 2:
			words, st, err := values.Recv[[]string](world, cohort.AnySource, 0)
			if err == nil {
				fmt.Println(strings.Join(words, " "), "from rank", st.Source)
			}
			return err
		}
		return nil
	})
	// Output:
	// a list of words from rank 1
}

// A receive of several kinds of messages uses an interface. Types other than those of the language are
// registered with gob.Register.
func ExampleRecv() {
	four(func(world *cohort.Comm) error {
		if world.Rank() > 0 {
			var x any = float64(world.Rank()) / 2
			if world.Rank() == 3 {
				x = "no result"
			}
			return values.Send(world, x, 0, 0)
		}
		for r := 1; r < 4; r++ {
			x, _, err := values.Recv[any](world, r, 0)
			if err != nil {
				return err
			}
			switch x := x.(type) {
			case float64:
				fmt.Println("number", x)
			case string:
				fmt.Println("text", x)
			}
		}
		return nil
	})
	// Output:
	// number 0.5
	// number 1
	// text no result
}

func ExampleGather() {
	type Result struct {
		Rank  int
		Names []string
	}
	four(func(world *cohort.Comm) error {
		mine := Result{Rank: world.Rank(), Names: []string{"a", "b", "c", "d"}[:world.Rank()]}
		all, err := values.Gather(world, mine, 0)
		if err == nil && world.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output:
	// [{0 []} {1 [a]} {2 [a b]} {3 [a b c]}]
}

func ExampleAllgather() {
	four(func(world *cohort.Comm) error {
		names, err := values.Allgather(world, fmt.Sprint("host", world.Rank()))
		if err == nil && world.Rank() == 2 {
			fmt.Println(names)
		}
		return err
	})
	// Output:
	// [host0 host1 host2 host3]
}

func ExampleScatter() {
	four(func(world *cohort.Comm) error {
		var tasks [][]string
		if world.Rank() == 0 {
			tasks = [][]string{{"read"}, {"sort", "merge"}, {"write"}, nil}
		}
		mine, err := values.Scatter(world, tasks, 0)
		if err == nil && world.Rank() == 1 {
			fmt.Println(mine)
		}
		return err
	})
	// Output:
	// [sort merge]
}

func ExampleAlltoall() {
	four(func(world *cohort.Comm) error {
		letters := make([]string, 4)
		for to := range letters {
			letters[to] = fmt.Sprintf("%d→%d", world.Rank(), to)
		}
		mine, err := values.Alltoall(world, letters)
		if err == nil && world.Rank() == 1 {
			fmt.Println(mine)
		}
		return err
	})
	// Output:
	// [0→1 1→1 2→1 3→1]
}

// The function need not commute: the ranks' values are combined in their order.
func ExampleReduce() {
	four(func(world *cohort.Comm) error {
		text, err := values.Reduce(world, fmt.Sprint(world.Rank()), func(a, b string) string { return a + b }, 3)
		if err == nil && world.Rank() == 3 {
			fmt.Println(text)
		}
		return err
	})
	// Output:
	// 0123
}

// Each rank has counted words; all get the sums.
func ExampleAllreduce() {
	four(func(world *cohort.Comm) error {
		counts := map[string]int{"go": world.Rank(), "rust": 1}
		total, err := values.Allreduce(world, counts, func(a, b map[string]int) map[string]int {
			for word, n := range b {
				a[word] += n
			}
			return a
		})
		if err == nil && world.Rank() == 2 {
			fmt.Println(total)
		}
		return err
	})
	// Output:
	// map[go:6 rust:4]
}

// A program stores a value in its own messages.
func ExampleEncode() {
	b, err := values.Encode(map[string]int{"width": 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	sizes, err := values.Decode[map[string]int](b, 2) // errors say that it came from rank 2
	fmt.Println(sizes, err)
	_, err = values.Decode[string](b, 2)
	fmt.Println(errors.Is(err, cohort.ErrType))
	// Output:
	// map[width:3] <nil>
	// true
}
