package topo

import (
	"errors"
	"fmt"
	"strings"
)

// ErrCounts is wrapped by errors of [ExpandCounts].
var ErrCounts = errors.New("topo: not a list of counts")

// ExpandCounts expands a list of numbers as Slurm writes them for the nodes of a job: 4(x2),3 is 4,
// 4, 3. Numbers above 31 bits, and more than [MaxHosts] numbers, are errors.
func ExpandCounts(list string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		number, times := part, 1
		ok := true
		if before, after, found := strings.Cut(part, "("); found {
			inside, closed := strings.CutSuffix(after, ")")
			repeat, isTimes := strings.CutPrefix(inside, "x")
			number = before
			times, ok = decimal(repeat)
			ok = ok && closed && isTimes && times > 0
		}
		n, isNumber := decimal(number)
		if !ok || !isNumber {
			return nil, fmt.Errorf("%w: %s: %s is neither a number nor a number with repetitions such as 4(x2)", ErrCounts, quote(list), quote(part))
		}
		if times > MaxHosts-len(all) {
			return nil, fmt.Errorf("%w: %s: more than %d numbers", ErrCounts, quote(list), MaxHosts)
		}
		for range times {
			all = append(all, n)
		}
	}
	return all, nil
}
