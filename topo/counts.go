package topo

import (
	"errors"
	"fmt"
	"strings"
)

// ErrCounts is in every error of a list of counts that cannot be expanded.
var ErrCounts = errors.New("topo: not a list of counts")

// ExpandCounts returns the numbers of a list as Slurm writes them for each node of
// a job, with repetitions: 4(x2),3 is 4, 4, 3. Numbers fit 31 bits, and more than
// [MaxHosts] of them are an error.
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
