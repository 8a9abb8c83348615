// Command is is kernel IS of the NAS Parallel Benchmarks: it finds the rank of every key, an integer that is about
// normally distributed, among all keys.
//
//	go run ./cmd/cohort run -n 2 ./bench/npb/is -class A
//
// The ranks (processes) divide the range of keys so that each gets about as many, exchange their keys, and count.
package main

import (
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

// problem is 2^keys keys below 2^bits. After iteration i the key at index[j] has rank ranks[j] + i step[j].
type problem struct {
	keys, bits         int
	index, ranks, step [published]int
}

const published = 5 // keys whose ranks are known

type five = [published]int

var classes = map[string]problem{
	"S": {16, 11, five{48427, 17148, 23627, 62548, 4431},
		five{0, 18, 346, 64917, 65463}, five{1, 1, 1, -1, -1}},
	"W": {20, 16, five{357773, 934767, 875723, 898999, 404505},
		five{1249 - 2, 11698 - 2, 1039987, 1043896, 1048018}, five{1, 1, -1, -1, -1}},
	"A": {23, 19, five{2112377, 662041, 5336171, 3642833, 4250760},
		five{104 - 1, 17523 - 1, 123928 - 1, 8288932 + 1, 8388264 + 1}, five{1, 1, 1, -1, -1}},
	"B": {25, 21, five{41869, 812306, 5102857, 18232239, 26860214},
		five{33422937, 10244, 59149, 33135281, 99}, five{-1, 1, 1, -1, 1}},
	"C": {27, 23, five{44172927, 72999161, 74326391, 129606274, 21736814},
		five{61147, 882988, 266290, 133997595, 133525895}, five{1, 1, 1, -1, -1}},
}

const iterations = 10

func main() { npb.Main("IS", classes, run) }

func run(world *cohort.Comm, p problem, clock *npb.Clock) (npb.Result, error) {
	s := newSorter(world, p, clock)
	if err := s.iterate(1); err != nil { // not timed: it touches all memory once
		return npb.Result{}, err
	}
	s.right = 0
	if err := clock.Start(world); err != nil {
		return npb.Result{}, err
	}
	for i := range iterations {
		if err := s.iterate(i + 1); err != nil {
			return npb.Result{}, err
		}
	}
	clock.Stop()
	counts, err := s.total(s.sort())
	if err != nil {
		return npb.Result{}, err
	}
	n := float64(int(1) << p.keys)
	return npb.Result{
		Size:       fmt.Sprintf("2^%d keys below 2^%d", p.keys, p.bits),
		Iterations: iterations,
		Operations: iterations * n,
		Checks: []npb.Check{
			npb.Near("ranks as published", float64(counts[0]), float64(iterations*published), 0),
			npb.Near("sorted keys", float64(counts[1]), n, 0),
			npb.Near("keys out of order", float64(counts[2]), 0, 0),
		},
	}, nil
}

// total adds up, over all ranks, how many of the published ranks are right, how many keys are sorted, and how many of these
// are smaller than the key before.
func (s *sorter) total(sorted []int32) ([]int, error) {
	largest := int32(-1)
	if len(sorted) > 0 {
		largest = sorted[len(sorted)-1]
	}
	before, err := cohort.ExscanOne(s.world, largest, cohort.Max) // the largest key of the lower ranks
	if err != nil {
		return nil, err
	}
	if s.world.Rank() == 0 {
		before = -1
	}
	counts := []int{s.right, len(sorted), 0}
	for _, key := range sorted {
		if key < before {
			counts[2]++
		}
		before = key
	}
	return counts, cohort.Allreduce(s.world, counts, counts, cohort.Sum)
}
