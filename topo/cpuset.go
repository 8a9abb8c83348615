package topo

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CPUSet is a set of logical processors, by the kernel's numbers, in ascending order without
// repetitions. The nil set is empty.
type CPUSet []int

// maxCPU is the highest accepted processor number; Linux has at most 8192 processors.
const maxCPU = 1<<16 - 1

// NewCPUSet returns the set of the given processors, which may be in any order.
func NewCPUSet(cpus ...int) CPUSet {
	if len(cpus) == 0 {
		return nil
	}
	set := slices.Clone(cpus)
	slices.Sort(set)
	return slices.Compact(set)
}

// ParseCPUSet parses the kernel's list format: "0-3,8,10-11". It ignores white space around the
// list; an empty list is an empty set.
func ParseCPUSet(list string) (CPUSet, error) {
	list = strings.TrimSpace(list)
	if list == "" {
		return nil, nil
	}
	type span struct{ first, last int }
	var spans []span
	for part := range strings.SplitSeq(list, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		first, ok1 := decimal(from)
		last, ok2 := decimal(to)
		if !ok1 || !ok2 || first > last || last > maxCPU {
			return nil, fmt.Errorf("processor list %s: %s is neither a number nor a range up to %d", quote(list), quote(part), maxCPU)
		}
		spans = append(spans, span{first, last})
	}
	// Ranges are merged before they are expanded, so that no list takes more memory than all
	// processors.
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.first-b.first, a.last-b.last) })
	var set CPUSet
	next := 0
	for _, s := range spans {
		for c := max(s.first, next); c <= s.last; c++ {
			set = append(set, c)
		}
		next = max(next, s.last+1)
	}
	return set, nil
}

// String returns the set in the kernel's list format, or "" if it is empty.
func (s CPUSet) String() string { return ranges(s) }

// Contains reports whether a processor is in the set.
func (s CPUSet) Contains(cpu int) bool {
	_, found := slices.BinarySearch(s, cpu)
	return found
}

// Intersect returns the processors that are in both sets.
func (s CPUSet) Intersect(t CPUSet) CPUSet { return s.where(t.Contains) }

// Union returns the processors that are in either set.
func (s CPUSet) Union(t CPUSet) CPUSet {
	return NewCPUSet(slices.Concat(s, t)...)
}

// Minus returns the processors that are in s and not in t.
func (s CPUSet) Minus(t CPUSet) CPUSet {
	return s.where(func(cpu int) bool { return !t.Contains(cpu) })
}

func (s CPUSet) where(fits func(cpu int) bool) (part CPUSet) {
	for _, c := range s {
		if fits(c) {
			part = append(part, c)
		}
	}
	return part
}

// Equal reports whether the sets have the same processors.
func (s CPUSet) Equal(t CPUSet) bool { return slices.Equal(s, t) }

// ranges formats ascending numbers as "0-3,7".
func ranges(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(numbers[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(numbers[j]))
		}
		i = j + 1
	}
	return b.String()
}

// decimal parses a number of digits only, without sign or space. It fits in 32 bits, so that sums
// of a few do not overflow.
func decimal(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil
}

// quote quotes text from outside and shortens it for an error.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}
