package lp

import (
	"errors"
	"strings"
	"testing"
)

func TestOpenChoosesSolver(t *testing.T) {
	open(t, CLP) // skips without the library
	for _, c := range []struct {
		kind string
		rows int
		want string
	}{
		{Embedded, 10, Embedded},
		{Embedded, 10000, Embedded},
		{CLP, 10, CLP},
		{CLP, 10000, CLP},
		{Auto, 0, Embedded},
		{Auto, autoRows - 1, Embedded},
		{Auto, autoRows, CLP},
	} {
		mk, info, err := Open(c.kind, c.rows)
		if err != nil || info.Kind != c.want {
			t.Errorf("%s, %d rows: got %v, %v, want %s", c.kind, c.rows, info, err, c.want)
			continue
		}
		kind := Embedded
		if _, ok := mk().(*Clp); ok {
			kind = CLP
		}
		if kind != c.want {
			t.Errorf("%s, %d rows: makes %s, says %s", c.kind, c.rows, kind, c.want)
		}
		if loaded := info.Library != "" && info.Version != "" && strings.Contains(info.String(), info.Version); loaded != (c.want == CLP) {
			t.Errorf("%s: got %+v, %v", c.kind, info, info)
		}
	}
	for _, kind := range []string{"", "glpk", "CLP"} {
		if _, _, err := Open(kind, 10); !errors.Is(err, ErrMisuse) || !strings.Contains(err.Error(), "auto, embedded or clp") {
			t.Errorf("%q: got %v", kind, err)
		}
	}
}
