package spawn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CPUs is a set of logical processors, by the kernel's numbers, in the order in
// which they are to be shared out.
type CPUs []int

// maxCPU is the highest processor number accepted: the kernel's own limit is 8191.
const maxCPU = 1<<16 - 1

// ParseCPUs reads the kernel's list format: "0-3,8,10-11". An empty list is an
// empty set.
func ParseCPUs(s string) (CPUs, error) {
	var set CPUs
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		first, last, ranged := strings.Cut(part, "-")
		lo, err := strconv.Atoi(first)
		hi := lo
		if err == nil && ranged {
			hi, err = strconv.Atoi(last)
		}
		if err != nil || lo < 0 || hi < lo || hi > maxCPU {
			return nil, fmt.Errorf("processor list %q: %q is neither a number nor a range up to %d", s, part, maxCPU)
		}
		for c := lo; c <= hi; c++ {
			set = append(set, c)
		}
	}
	slices.Sort(set)
	return slices.Compact(set), nil
}

// String returns the set in the kernel's list format, in rising order.
func (s CPUs) String() string {
	sorted := slices.Compact(slices.Sorted(slices.Values(s)))
	var b strings.Builder
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(sorted[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(sorted[j]))
		}
		i = j + 1
	}
	return b.String()
}
