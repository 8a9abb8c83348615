//go:build cgo && linux && !cohort_nompi && !cohort_noshm && !cohort_notcp

package cohort

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// full returns a Config in which every field has a value, each a different one.
func full(t *testing.T) (c Config) {
	t.Helper()
	var set func(v reflect.Value, path string)
	set = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			name := path + v.Type().Field(i).Name
			switch f := v.Field(i); f.Kind() {
			case reflect.Struct:
				set(f, name+".")
			case reflect.String:
				f.SetString("of " + name)
			case reflect.Int, reflect.Int64:
				f.SetInt(int64(len(path)+1)*1000 + int64(i))
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Map:
				f.Set(reflect.ValueOf(map[string]string{"allreduce": "of " + name}))
			default:
				t.Fatalf("Config.%s is a %v, which the test does not handle", name, f.Type())
			}
		}
	}
	set(reflect.ValueOf(&c).Elem(), "")
	return c
}

// Every setting reaches the backends with a field for it, and no setting is left unused.
func TestSettingsReachTheBackends(t *testing.T) {
	cfg := full(t)
	s := settings{Config: cfg, entry: entry{placed: placed, podWorlds: new(int), first: firstWorld{"first", "launcher@a:2", []int{3}}}}
	ours := fields(reflect.ValueOf(cfg), "", map[string]any{})
	// The settings that this package itself uses.
	used := []string{"Backend", "Resilient", "Timeout", "FlightDir", "Collectives"}
	for _, b := range []struct {
		name   string
		config any
		ours   map[string]string // settings with another name there
		own    map[string]any    // fields that are not settings, and their expected values
	}{
		{"common", s.common(), nil, map[string]any{"Share": nil}},
		{"TCP", tcpConfig(s), map[string]string{"TLSCert": "TLS.Cert", "TLSKey": "TLS.Key", "TLSCA": "TLS.CA", "TLSName": "TLS.Name"}, map[string]any{"Met": "a:2", "FirstJob": "first", "FirstRanks": []int{3}, "Launcher": false, "Worlds": s.podWorlds, "Secret": "", "Share": nil}},
		{"MPI", mpiConfig(context.Background(), s), map[string]string{"Library": "Lib"},
			map[string]any{"Bounded": true, "Oversubscribed": false}},
	} {
		for name, got := range fields(reflect.ValueOf(b.config), "", map[string]any{}) {
			name = strings.TrimPrefix(strings.TrimPrefix(name, "Settings."), "Config.")
			from := cmp.Or(b.ours[name], name)
			if _, ok := ours[b.name+"."+from]; ok {
				from = b.name + "." + from
			}
			want, ok := ours[from]
			if used = append(used, from); !ok {
				want, ok = b.own[name]
			}
			if !ok || fmt.Sprint(got) != fmt.Sprint(want) { // the types of enumerations differ
				t.Errorf("%s: its Config's %s is %v, want %v (known: %v)", b.name, name, got, want, ok)
			}
		}
	}
	for name := range ours {
		if !slices.Contains(used, name) {
			t.Errorf("Config.%s reaches no backend", name)
		}
	}
	s.TCP.Coordinator = "launcher@a:1"
	if c := tcpConfig(s); c.Coordinator != "a:1" || !c.Launcher {
		t.Errorf("%s is the coordinator %q, of a launcher: %v", s.TCP.Coordinator, c.Coordinator, c.Launcher)
	}
	s.Timeout = 0
	if mpiConfig(context.Background(), s).Bounded {
		t.Error("mpi: operations are bounded without a timeout")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !mpiConfig(ctx, s).Bounded {
		t.Error("mpi: operations are not bounded with a context that can end")
	}
}
