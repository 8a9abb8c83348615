package cohort_test

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func ExampleBcastOne() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		x, err := cohort.BcastOne(world, 1.5*float64(world.Rank()), 2)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(x)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 3
}

func ExampleReduceOne() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		x, err := cohort.ReduceOne(world, world.Rank()+1, cohort.Prod, 0)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(x)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 24
}

func ExampleAllreduceOne() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		x, err := cohort.AllreduceOne(world, world.Rank(), cohort.Sum)
		if err != nil {
			return err
		}
		if world.Rank() == 3 {
			fmt.Println(x)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 6
}

func ExampleScanOne() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		x, err := cohort.ScanOne(world, world.Rank(), cohort.Sum)
		if err != nil {
			return err
		}
		if world.Rank() == 2 {
			fmt.Println(x)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 3
}

func ExampleExscanOne() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		x, err := cohort.ExscanOne(world, world.Rank(), cohort.Sum)
		if err != nil {
			return err
		}
		if world.Rank() == 2 {
			fmt.Println(x)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1
}
