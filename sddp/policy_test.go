package sddp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// toyPolicy returns a policy with a few cuts.
func toyPolicy(t testing.TB) (*Case, *Policy) {
	c := readShipped(t, "toy")
	p := &Policy{
		CaseName: c.Name, CaseSHA256: c.SHA256(), Seed: math.MaxUint64, Openings: 10, Passes: 1,
		Iterations: 3, LowerBound: 0.1 + 0.2, FutureSHA256: "future", Reservoirs: c.reservoirNames(), Pool: newPool(c.Stages, 1),
	}
	p.Pool.add(0, []float64{math.Pi, -1e-300, 5e-324, math.Copysign(0, -1)})
	p.Pool.add(1, []float64{math.MaxFloat64, -1.0 / 3})
	return c, p
}

func TestPolicyReadsBackBitForBit(t *testing.T) {
	c, p := toyPolicy(t)
	got, err := ParsePolicy("policy.json", p.Encode(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, p) || got.Pool.SHA256() != p.Pool.SHA256() {
		t.Errorf("got %+v, want %+v", got, p)
	}
}

func TestInvalidPolicyIsRejected(t *testing.T) {
	c, p := toyPolicy(t)
	text := string(p.Encode())
	for _, k := range []struct {
		name, old, with string
		want            []string
	}{
		{"cut off", text[len(text)/2:], "", []string{"ends inside a value"}},
		{"empty", text, "", []string{"the file is empty"}},
		{"format", "cohort-sddp-policy", "cohort-sddp-case", []string{"format", `want "cohort-sddp-policy"`}},
		{"version", `"version": 3`, `"version": 9`, []string{"version", "got 9", "from 3 to 3"}},
		{"unknown field", `"passes"`, `"color": 1, "passes"`, []string{"color", "unknown field"}},
		{"another case", c.SHA256(), strings.Repeat("0", 64), []string{"case_sha256", "valid only for the case it was trained for"}},
		{"seed", `"18446744073709551615"`, `"-1"`, []string{"seed", `got "-1"`}},
		{"openings", `"openings": 10`, `"openings": 0`, []string{"openings", "got 0"}},
		{"another reservoir", `["Lake"]`, `["Sea"]`, []string{"reservoirs", "Sea", "Lake"}},
		{"a changed cut", "3.141592653589793", "3.141592653589794", []string{"cuts_sha256", "changed or damaged"}},
		{"a number too few", "[1.7976931348623157e+308, -0.3333333333333333]", "[1.7976931348623157e+308]", []string{"cuts[1][0]", "got 1 numbers, want 2"}},
		{"a text for a cut", "[1.7976931348623157e+308, -0.3333333333333333]", `"none"`, []string{"cuts[1]", "want a list of cuts"}},
		{"infinite", "1.7976931348623157e+308", "1e999", []string{"cuts[1]"}},
	} {
		t.Run(k.name, func(t *testing.T) {
			bad := strings.Replace(text, k.old, k.with, 1)
			if bad == text {
				t.Fatalf("the policy does not hold %q", k.old)
			}
			_, err := ParsePolicy("policy.json", []byte(bad), c)
			if err == nil {
				t.Fatal("the policy was read, want an error")
			}
			for _, w := range append(k.want, "policy.json") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error does not hold %q:\n%v", w, err)
				}
			}
		})
	}
}

// Rank 0 reads the policy from a folder or a file. The policy of another case is an error on all ranks.
func TestAllRanksLoadPolicyOfRankZero(t *testing.T) {
	c, p := toyPolicy(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, PolicyFile), p.Encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	other := readShipped(t, "brazil4")
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		for _, path := range []string{dir, filepath.Join(dir, PolicyFile)} {
			if world.Rank() > 0 {
				path = "not read here"
			}
			got, err := LoadPolicy(world, path, c)
			if err != nil {
				return err
			}
			if got.Pool.SHA256() != p.Pool.SHA256() {
				return fmt.Errorf("rank %d has another policy", world.Rank())
			}
		}
		if _, err := LoadPolicy(world, dir, other); err == nil || !strings.Contains(err.Error(), `"toy"`) || !strings.Contains(err.Error(), `"brazil4"`) {
			return fmt.Errorf("rank %d: a policy of another case: got %v", world.Rank(), err)
		}
		if _, err := LoadPolicy(world, filepath.Join(dir, "none"), c); err == nil || !strings.Contains(err.Error(), "none") {
			return fmt.Errorf("rank %d: no policy: got %v", world.Rank(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A policy of a long training may be longer than the files of a case; this one has white space at its end.
func TestPolicyLongerThanCaseLimitLoads(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: a policy of 64 MiB is read; make test-all runs it")
	}
	c, p := toyPolicy(t)
	file := filepath.Join(t.TempDir(), PolicyFile)
	if err := os.WriteFile(file, append(p.Encode(), bytes.Repeat([]byte{'\n'}, maxFile)...), 0o644); err != nil {
		t.Fatal(err)
	}
	err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
		got, err := LoadPolicy(world, file, c)
		if err == nil && got.Pool.SHA256() != p.Pool.SHA256() {
			err = errors.New("another policy")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Reading any file ends with a policy or with an error. A policy that was read can be written and reads
// back the same.
func FuzzPolicy(f *testing.F) {
	c, p := toyPolicy(f)
	f.Add(p.Encode())
	f.Add([]byte(strings.Replace(string(p.Encode()), "[", "[[", 1)))
	p.Openings, p.MultiCut = 2, true
	p.Pool = newPoolOf(Options{Openings: 2, MultiCut: true}.futures(c), 1)
	p.Pool.add(3, []float64{1, -2})
	f.Add(p.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParsePolicy("policy.json", data, c)
		if err != nil {
			return
		}
		again, err := ParsePolicy("policy.json", p.Encode(), c)
		if err != nil || again.Pool.SHA256() != p.Pool.SHA256() {
			t.Errorf("read back: %v", err)
		}
	})
}
