package sddp

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// smallCheckpoint returns the content of a checkpoint of two iterations. The pool has its cuts in two
// parts, followed by the cuts of a third iteration, as in the middle of that iteration.
func smallCheckpoint() (origin, []Iteration, *Pool) {
	o := origin{
		caseName: "a \"case\"", caseSHA256: strings.Repeat("ab", 32), inflowsSHA256: strings.Repeat("cd", 32), arch: "amd64", solver: "embedded", method: "expectation",
		seed: math.MaxUint64, openings: 3, passes: 2, stages: 3, states: 1, lists: 2,
	}
	its := []Iteration{
		{Number: 1, LowerBound: -0.1, Upper: Estimate{2, 5e300, 0, math.Inf(1)}, Gap: math.Inf(1), Cuts: 3, ListCuts: []int{2, 1}, Solves: 40, LP: time.Second, Comm: 1, Total: math.MaxInt64},
		{Number: 2, LowerBound: 0.3, Upper: Estimate{2, 7, 1.0 / 3, 0.25}, Gap: 0.5, Cuts: 7, ListCuts: []int{4, 3}, Solves: 1 << 40},
	}
	pool := newPool(o.stages, o.states)
	for t := range 2 {
		for part, cuts := range []int{2, 4} {
			pool.extend(t, make([]float64, 0, 2*cuts))
			for i, x := range []float64{math.Pi, -1e-300, 5e-324, math.Copysign(0, -1), 1e308, -1.0 / 3, 1, 2}[:2*cuts] {
				pool.grow(t, 1)[0] = x * float64(1+t+10*part+i)
			}
			pool.lists[t].n = 2 + 4*part
		}
	}
	return o, its, pool
}

// encoded returns a checkpoint.
func encoded(t testing.TB, o origin, its []Iteration, pool *Pool) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := encodeCheckpoint(&b, o, its, pool); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readBytes reads a checkpoint.
func readBytes(data []byte) (*checkpointReader, error) {
	return readCheckpoint("file", bytes.NewReader(data), int64(len(data)))
}

func TestCheckpointReadsBackBitForBit(t *testing.T) {
	o, its, pool := smallCheckpoint()
	got, err := readBytes(encoded(t, o, its, pool))
	if err != nil {
		t.Fatal(err)
	}
	if got.origin != o || !reflect.DeepEqual(got.its, its) {
		t.Errorf("got %+v and %+v, want %+v and %+v", got.origin, got.its, o, its)
	}
	for s := range o.stages - 1 {
		for i := range its[1].ListCuts[s] {
			cut := make([]float64, 2)
			if err := got.cuts(s, 2*i, cut); err != nil {
				t.Fatal(err)
			}
			if alpha, beta := pool.Cut(s, i); !sameBits(cut, []float64{alpha, beta[0]}) {
				t.Errorf("stage %d, cut %d: got %v, want %v %v", s, i, cut, alpha, beta)
			}
		}
	}
	if err := encodeCheckpoint(&bytes.Buffer{}, o, []Iteration{{ListCuts: []int{6, 7}}}, pool); err == nil {
		t.Error("a checkpoint with too few cuts was written")
	}
}

// A changed byte, a missing end and an extra byte are detected.
func TestAnyDamageOfCheckpointIsDetected(t *testing.T) {
	o, its, pool := smallCheckpoint()
	data := encoded(t, o, its, pool)
	for i := range data {
		for _, flip := range []byte{1, 0x80} {
			bad := bytes.Clone(data)
			bad[i] ^= flip
			if _, err := readBytes(bad); err == nil || !strings.HasPrefix(err.Error(), "file: ") {
				t.Fatalf("byte %d of %d changed: got %v", i, len(data), err)
			}
		}
		if _, err := readBytes(data[:i]); err == nil || !strings.HasPrefix(err.Error(), "file: ") {
			t.Fatalf("%d bytes of %d: got %v", i, len(data), err)
		}
	}
	if _, err := readBytes(append(bytes.Clone(data), 0)); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a byte more: got %v", err)
	}
}

// packCounts returns numbers of cuts as in a checkpoint.
func packCounts(counts ...uint64) (out []byte) {
	for _, n := range counts {
		out = binary.LittleEndian.AppendUint64(out, n)
	}
	return out
}

// signed replaces the digest at the end by that of the content.
func signed(data []byte) []byte {
	body := data[:len(data)-sha256.Size]
	sum := sha256.Sum256(body)
	return append(bytes.Clone(body), sum[:]...)
}

// A file with a valid digest and wrong content is rejected with the field that is wrong, and no memory is
// allocated for sizes that only its first line claims.
func TestInvalidCheckpointFieldsAreRejected(t *testing.T) {
	o, its, pool := smallCheckpoint()
	data := encoded(t, o, its, pool)
	for _, k := range []struct {
		name, old, with string
		want            []string
	}{
		{"format", "cohort-sddp-checkpoint", "cohort-sddp-policy", []string{"format", `want "cohort-sddp-checkpoint"`}},
		{"version", `"version": 7`, `"version": 1`, []string{"version: got 1"}},
		{"no line", "\n", " ", []string{"no first line"}},
		{"unknown field", `"passes"`, `"color": 1, "passes"`, []string{"color: unknown field"}},
		{"no seed", `"seed": "18446744073709551615", `, "", []string{"seed: missing"}},
		{"seed", "18446744073709551615", "18446744073709551616", []string{"seed: got"}},
		{"no passes", `"passes": 2`, `"passes": 0`, []string{"passes: got 0"}},
		{"no openings", `"openings": 3`, `"openings": -1`, []string{"openings: got -1"}},
		{"one stage", `"stages": 3`, `"stages": 1`, []string{"stages: got 1"}},
		{"no iterations", `"iterations": 2`, `"iterations": 0`, []string{"iterations: got 0"}},
		{"all it may say", `"passes": 2, "stages": 3, "states": 1, "lists": 2, "seeds": 0, "selection": 0, "iterations": 2`, `"passes": 100000, "stages": 1200, "states": 70000, "lists": 119900000, "seeds": 0, "selection": 0, "iterations": 100000`,
			[]string{"want 959200072005", "damaged"}},
		{"not finite", string(packNumbers([]float64{-0.1})), string(packNumbers([]float64{math.Inf(-1)})), []string{"iteration 1: lower bound"}},
		{"falling bound", string(packNumbers([]float64{-0.1})), string(packNumbers([]float64{0.5})), []string{"iteration 2: lower bound 0.3 after 0.5"}},
		{"no mean", string(packNumbers([]float64{5e300})), string(packNumbers([]float64{math.NaN()})), []string{"iteration 1: forward costs"}},
		{"no interval", string(packNumbers([]float64{0.25})), string(packNumbers([]float64{-1})), []string{"iteration 2: interval -1"}},
		{"too many cuts", string(packCounts(2, 1)), string(packCounts(3, 1)), []string{"iteration 1: 3 cuts of list 1 after 0"}},
		{"fewer cuts", string(packCounts(2, 1)), string(packCounts(2, 4)), []string{"iteration 1: 4 cuts of list 2 after 0"}},
		{"another number of cuts", string(packCounts(4, 3)), string(packCounts(4, 4)), []string{"damaged", "want"}},
		{"negative count", string(packNumbers([]float64{0.5})) + string(packCounts(1<<40)), string(packNumbers([]float64{0.5})) + string(packCounts(1<<63)), []string{"iteration 2: negative"}},
	} {
		t.Run(k.name, func(t *testing.T) {
			bad := signed(bytes.Replace(data, []byte(k.old), []byte(k.with), 1))
			if bytes.Equal(bad, data) {
				t.Fatalf("the checkpoint does not hold %q", k.old)
			}
			_, err := readBytes(bad)
			for _, w := range append(k.want, "file: ") {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("got %v, want %q in it", err, w)
				}
			}
		})
	}
	nan := signed(bytes.Replace(data, packNumbers([]float64{math.Pi}), packNumbers([]float64{math.NaN()}), 1))
	r, err := readBytes(nan)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cuts(0, 0, make([]float64, 2)); err == nil || !strings.Contains(err.Error(), "cuts of list 1") {
		t.Errorf("a NaN in a cut: got %v", err)
	}
}

func TestCheckpointOfAnotherTrainingIsRejected(t *testing.T) {
	o, _, _ := smallCheckpoint()
	for field, change := range map[string]func(*origin){
		"seed": func(o *origin) { o.seed = 7 }, "passes": func(o *origin) { o.passes = 7 },
		"openings":     func(o *origin) { o.openings = 7 },
		"architecture": func(o *origin) { o.arch = "arm64" }, "case_sha256": func(o *origin) { o.caseSHA256 = strings.Repeat("7", 64) },
		"inflows_sha256": func(o *origin) { o.inflowsSHA256 = strings.Repeat("7", 64) },
	} {
		other, p := o, &problems{}
		change(&other)
		o.differences(p, "file", other)
		if err := p.err(); err == nil || !strings.HasPrefix(err.Error(), "file: "+field+": got ") || len(p.errs) != 1 || !strings.Contains(err.Error(), "7") && field != "architecture" {
			t.Errorf("%s: got %v", field, err)
		}
	}
	p := &problems{}
	if o.differences(p, "file", o); p.err() != nil {
		t.Errorf("with itself: %v", p.err())
	}
}

func TestCheckpointsAreFoundByName(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"checkpoint-000007.bin", "checkpoint-000100.bin", "checkpoint-7.bin", "checkpoint-+00007.bin", "checkpoint-000000.bin",
		"checkpoint-000008", "000009.bin", ".checkpoint-000010.bin.123.tmp", "checkpoint-999999.bin", "checkpoint-100000.bin", "policy.json",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := checkpointsIn(dir); err != nil || !reflect.DeepEqual(got, []int{100000, 100, 7}) {
		t.Errorf("got %v (%v), want 100000, 100 and 7", got, err)
	}
	if got, err := checkpointsIn(filepath.Join(dir, "none")); err != nil || len(got) != 0 {
		t.Errorf("no folder: got %v (%v)", got, err)
	}
	if _, err := checkpointsIn(filepath.Join(dir, "policy.json")); err == nil || !strings.Contains(err.Error(), "policy.json") {
		t.Errorf("no folder but a file: got %v", err)
	}
}

// Reading any file ends with a checkpoint or with an error. A checkpoint that was read can be written and
// reads back the same.
func FuzzCheckpoint(f *testing.F) {
	o, its, pool := smallCheckpoint()
	data := encoded(f, o, its, pool)
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Add(data[:bytes.IndexByte(data, '\n')])
	f.Add([]byte("{}\n"))
	o.selects = true
	pool.selection = newSelection(o.stages, o.states)
	for s := range o.stages - 1 {
		pool.selection.add(pool, s, []float64{1, 2, 3, 4})
	}
	f.Add(encoded(f, o, its, pool))
	o.selects, o.lists = false, 4 // multi-cut with two openings
	pool.lists = slices.Concat(pool.lists, pool.lists)
	for i := range its {
		its[i].ListCuts = slices.Concat(its[i].ListCuts, its[i].ListCuts)
	}
	f.Add(encoded(f, o, its, pool))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > sha256.Size { // otherwise the digest hides the other checks
			data = signed(data)
		}
		r, err := readBytes(data)
		if err != nil {
			return
		}
		pool := newPool(r.lists+1, r.states)
		if r.selects {
			pool.selection = newSelection(r.stages, r.states)
		}
		for s := range r.lists {
			cuts := make([]float64, r.its[len(r.its)-1].ListCuts[s]*r.width())
			if err := r.cuts(s, 0, cuts); err != nil {
				return
			}
			pool.add(s, cuts)
			if r.selects {
				points := make([]float64, len(r.its)*r.passes*r.states)
				if err := r.trials(s, 0, points); err != nil {
					return
				}
				pool.selection.stages[s].points = points
			}
		}
		again, err := readBytes(encoded(t, r.origin, r.its, pool))
		if err != nil || again.origin != r.origin || !reflect.DeepEqual(again.its, r.its) {
			t.Errorf("read back: %v", err)
		}
	})
}
