package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// compare measures and prints all operations and returns the worst ratio, 0 if there is no library
// to compare with.
func compare(all []contender, ops []string, sizes string, ranks, rounds int) (worst float64, err error) {
	var ours []string
	for _, c := range all {
		if c.ours {
			ours = append(ours, c.name)
		}
	}
	fmt.Printf("%d ranks, best of %d rounds, microseconds; ratio: %s to the faster library\n\n", ranks, rounds, strings.Join(ours, ", "))
	fmt.Printf("%-12s %10s", "op", "bytes")
	for _, c := range all {
		fmt.Printf(" %10s", c.name)
	}
	fmt.Printf("%s\n", strings.Repeat(fmt.Sprintf(" %8s", "ratio"), len(ours)))
	for _, op := range ops {
		best, err := bests(all, op, sizes, ranks, rounds)
		if err != nil {
			return 0, err
		}
		for _, bytes := range slices.Sorted(maps.Keys(best[0])) {
			line, ratio := row(all, op, bytes, best)
			fmt.Println(line)
			worst = max(worst, ratio)
		}
	}
	return worst, nil
}

// bests returns the contenders' best times by message size. A library that lacks the operation has
// none; it is an error if cohort does.
func bests(all []contender, op, sizes string, ranks, rounds int) ([]map[int]float64, error) {
	best := make([]map[int]float64, len(all))
	lacks := make([]bool, len(all))
	for range rounds {
		for i := range all {
			if lacks[i] {
				continue
			}
			records, err := all[i].measure(workload{op, sizes, ranks, 15})
			switch {
			case err != nil && all[i].ours:
				return nil, err
			case err != nil:
				fmt.Printf("(%s)\n", firstLine(err.Error()))
				lacks[i] = true
				continue
			}
			if best[i] == nil {
				best[i] = make(map[int]float64)
			}
			for _, r := range records {
				if t, ok := best[i][r.Bytes]; !ok || r.Usec < t {
					best[i][r.Bytes] = r.Usec
				}
			}
		}
	}
	return best, nil
}

// row returns a line of the table and the worst of its ratios, one for each of cohort's columns, in
// their order.
func row(all []contender, op string, bytes int, best []map[int]float64) (text string, worst float64) {
	var line strings.Builder
	fmt.Fprintf(&line, "%-12s %10d", op, bytes)
	fastest := math.Inf(1)
	for i, b := range best {
		t, ok := b[bytes]
		if !ok {
			fmt.Fprintf(&line, " %10s", "-")
			continue
		}
		fmt.Fprintf(&line, " %10.3f", t)
		if !all[i].ours {
			fastest = min(fastest, t)
		}
	}
	for i, b := range best {
		if all[i].ours && !math.IsInf(fastest, 1) {
			ratio := b[bytes] / fastest
			fmt.Fprintf(&line, " %8.2f", ratio)
			worst = max(worst, ratio)
		}
	}
	return line.String(), worst
}
