package cohort

import (
	"errors"
	"strings"
	"testing"
)

// Wrong arguments change nothing.
func TestReduceLocalRejectsWrongArguments(t *testing.T) {
	v := []int32{1, 2, 3, 4}
	for what, c := range map[string]struct{ err, want error }{
		"two lengths":         {ReduceLocal(v[:2], make([]int32, 3), Sum), ErrCount},
		"one slice":           {ReduceLocal(v, v, Sum), ErrBuffer},
		"slices that overlap": {ReduceLocal(v[:3], v[1:], Sum), ErrBuffer},
		"no op":               {ReduceLocal(v[:2], v[2:], Op{}), ErrOp},
		"Band of floats":      {ReduceLocal([]float64{1}, []float64{2}, Band), ErrOp},
		"strings":             {ReduceLocal([]string{"a"}, []string{"b"}, Sum), ErrType},
		"an op that panics": {ReduceLocal(v[:1], v[1:2], NewOp(true, func(in, inout []int32) { panic("no") })),
			ErrOp},
	} {
		if !errors.Is(c.err, c.want) || !strings.Contains(c.err.Error(), "reducelocal") {
			t.Errorf("ReduceLocal with %s: %v, want %v of reducelocal", what, c.err, c.want)
		}
	}
	for i, x := range v {
		if x != int32(i+1) {
			t.Errorf("element %d was changed to %d", i, x)
		}
	}
	if err := ReduceLocal[int32](nil, []int32{}, Sum); err != nil {
		t.Error(err)
	}
}
