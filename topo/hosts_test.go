package topo_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/topo"
)

func TestExpandHostsReadsBrackets(t *testing.T) {
	for list, want := range map[string]string{ // names separated by blanks
		"":                               "",
		" ,\n\t,":                        "",
		"n01":                            "n01",
		"n[1-3]":                         "n1 n2 n3",
		"n[01-03,07]":                    "n01 n02 n03 n07",
		"n[8-11]":                        "n8 n9 n10 n11",
		"n[08-11]":                       "n08 n09 n10 n11",
		"n[098-101]":                     "n098 n099 n100 n101",
		"n[9-010]":                       "n9 n10",
		"n[1,01,001]":                    "n1 n01 n001",
		"n[3,1,2-2]":                     "n3 n1 n2",
		"n[01-03,7],gpu-[1-2]x[3-4]":     "n01 n02 n03 n7 gpu-1x3 gpu-1x4 gpu-2x3 gpu-2x4",
		"rack[0-1]node[1-2,5]":           "rack0node1 rack0node2 rack0node5 rack1node1 rack1node2 rack1node5",
		"n[1-2]-ib.cluster,login":        "n1-ib.cluster n2-ib.cluster login",
		"nid00[040-042]":                 "nid00040 nid00041 nid00042",
		"n1,n1":                          "n1 n1",
		"a b\tc\nd,e":                    "a b c d e",
		"[1-2]":                          "1 2",
		"n[000000000000000000001-2]":     "n000000000000000000001 n000000000000000000002",
		"n[999999999999999998]":          "n999999999999999998",
		"tux[0-1],fox[3],tux[5-6]x":      "tux0 tux1 fox3 tux5x tux6x",
		"node-with-dashes-1-2,3-4,x[7]9": "node-with-dashes-1-2 3-4 x79",
	} {
		got, err := topo.ExpandHosts(list)
		if err != nil || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: got %q, %v; want %q", list, got, err, strings.Fields(want))
		}
	}
	for _, list := range []string{
		"n[", "n]", "n[1", "n1]", "n[]", "n[,]", "n[1,]", "n[-1]", "n[1-]", "n[2-1]", "n[a]", "n[1-b]", "n[1-2-3]", "n[+1]", "n[1 ]",
		"n[1-[2-3]]", "n[[1]]", "n[1]]", "n[0x1]", "n[1.5]", "n[9999999999999999999]", "n[٣]",
		strings.Repeat("n", 256), "n[" + strings.Repeat("0", 255) + "]", "a" + strings.Repeat("[1]", 300),
	} {
		if got, err := topo.ExpandHosts(list); !errors.Is(err, topo.ErrHosts) {
			t.Errorf("%q: got %q, %v", list, got, err)
		}
	}
}

// TestExpandHostsBySlurm compares with the output of scontrol show hostnames of Slurm 22.05.8: the
// list, an arrow, and the names.
func TestExpandHostsBySlurm(t *testing.T) {
	b, err := os.ReadFile("testdata/scontrol-hostnames.txt")
	if err != nil {
		t.Fatal(err)
	}
	lists := 0
	for line := range strings.Lines(string(b)) {
		list, names, found := strings.Cut(strings.TrimSpace(line), " => ")
		if !found {
			t.Fatalf("line %q", line)
		}
		lists++
		want := strings.Fields(names)
		if got, err := topo.ExpandHosts(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q, %v\nwant %q", list, got, err, want)
		}
	}
	if lists < 50 {
		t.Errorf("only %d lists", lists)
	}
}

// TestExpandHostsLimit expands lists that would not fit in memory.
func TestExpandHostsLimit(t *testing.T) {
	most, err := topo.ExpandHosts("n[0-65535]")
	if err != nil || len(most) != topo.MaxHosts {
		t.Errorf("as many as may be: %d, %v", len(most), err)
	}
	limit := fmt.Sprint(topo.MaxHosts)
	for _, list := range []string{
		"n[0-65536]", "n[0-65535],m", "m,n[0-65535]", "n[0-999999999]", "n[0-999999999999999999]",
		"a[0-999]b[0-999]", "a[0-65535]b[0-1]", "a[0-1]b[0-65535]", "[0-65535][0-65535][0-65535][0-65535]", "[0-99][0-99][0-99][0-99][0-99][0-99][0-99][0-99][0-99][0-99][0-99]",
		"n[" + strings.Repeat("0-65535,", 1000) + "0]", strings.Repeat("n[0-60000],", 100),
		strings.Repeat("n,", 70000), "n[" + strings.Repeat("1,", 70000) + "1]",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := topo.ExpandHosts(list)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, topo.ErrHosts) || !strings.Contains(err.Error(), limit) {
			t.Errorf("%.40s: got %d names, %v; want an error that names %s", list, len(got), err, limit)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%.40s: took %d MiB", list, took>>20)
		}
	}
}

func TestExpandCountsReadsSlurmsLists(t *testing.T) {
	for list, want := range map[string][]int{
		"4":             {4},
		"4(x2),3":       {4, 4, 3},
		"1,4(x2),8\n":   {1, 4, 4, 8},
		"2(x1)":         {2},
		"0":             {0},
		"128(x3),64,1":  {128, 128, 128, 64, 1},
		"2147483647,01": {2147483647, 1},
	} {
		got, err := topo.ExpandCounts(list)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v, %v; want %v", list, got, err, want)
		}
	}
	for _, list := range []string{
		"", ",", "4,", "a", "-1", "4(x0)", "4(x)", "4(2)", "4(x2", "4x2", "4(x2)3", "(x2)", "4 (x2)", "4(x-1)", "4(X2)", "2147483648",
		"1(x65537)", "1(x65536),1", "1(x2147483647)", "1(x99999999999999999999)", strings.Repeat("1,", 65536) + "1",
	} {
		if got, err := topo.ExpandCounts(list); !errors.Is(err, topo.ErrCounts) {
			t.Errorf("%.40q: got %d numbers, %v", list, len(got), err)
		}
	}
	if got, err := topo.ExpandCounts("1(x65536)"); err != nil || len(got) != topo.MaxHosts {
		t.Errorf("as many as may be: %d, %v", len(got), err)
	}
}
