package topo_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/topo"
)

func TestParseCPUSet(t *testing.T) {
	for _, c := range []struct {
		list string
		want topo.CPUSet
	}{
		{"", nil},
		{" \n", nil},
		{"0", topo.CPUSet{0}},
		{"0-3\n", topo.CPUSet{0, 1, 2, 3}},
		{"8,0-1,10-11", topo.CPUSet{0, 1, 8, 10, 11}},
		{"0-4,2-6,4", topo.CPUSet{0, 1, 2, 3, 4, 5, 6}},
		{"1-5,2-3,7", topo.CPUSet{1, 2, 3, 4, 5, 7}},
		{"1-5,2-3,4,7", topo.CPUSet{1, 2, 3, 4, 5, 7}},
		{"65535", topo.CPUSet{65535}},
	} {
		got, err := topo.ParseCPUSet(c.list)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: got %v, %v; want %v", c.list, []int(got), err, []int(c.want))
		}
	}
	for _, list := range []string{",", "0,", "a", "3-1", "-1", "0-", "-", "65536", "0-99999999999999999999", "0x1", "+1", "1 2", "0-3-5", "٣"} {
		if got, err := topo.ParseCPUSet(list); err == nil {
			t.Errorf("%q: got %v", list, got)
		}
	}
	// Repeated processors do not use more memory.
	got, err := topo.ParseCPUSet(strings.Repeat("0-65535,", 10000) + "7")
	if err != nil || len(got) != 65536 {
		t.Errorf("all processors ten thousand times: got %d, %v", len(got), err)
	}
}

// TestCPUSetOperations compares the operations with those on tables of booleans.
func TestCPUSetOperations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() (topo.CPUSet, [20]bool) {
		var in [20]bool
		var cpus []int
		for range r.IntN(20) {
			c := r.IntN(20)
			in[c] = true
			cpus = append(cpus, c)
		}
		return topo.NewCPUSet(cpus...), in
	}
	for range 500 {
		s, inS := random()
		u, inU := random()
		both, either, minus, equal := s.Intersect(u), s.Union(u), s.Minus(u), true
		for c := range 20 {
			if s.Contains(c) != inS[c] || both.Contains(c) != (inS[c] && inU[c]) ||
				either.Contains(c) != (inS[c] || inU[c]) || minus.Contains(c) != (inS[c] && !inU[c]) {
				t.Fatalf("%v and %v: %d is wrong in %v, %v or %v", s, u, c, both, either, minus)
			}
			equal = equal && inS[c] == inU[c]
		}
		if s.Equal(u) != equal {
			t.Fatalf("%v equal to %v: want %v", s, u, equal)
		}
		for _, x := range []topo.CPUSet{s, both, either, minus} {
			again, err := topo.ParseCPUSet(x.String())
			if err != nil || !again.Equal(x) {
				t.Fatalf("%v written and read: %v, %v", []int(x), []int(again), err)
			}
		}
	}
}
