//go:build cgo && linux && !cohort_nompi && !cohort_noshm && !cohort_notcp

package cohort

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// full returns a Config in which every field is set, each to another value.
func full(t *testing.T) (c Config) {
	t.Helper()
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch f := v.Field(i); f.Interface().(type) {
		case string:
			f.SetString("of " + name)
		case int, time.Duration:
			f.SetInt(int64(1000 + i))
		case bool:
			f.SetBool(true)
		case map[string]string:
			f.Set(reflect.ValueOf(map[string]string{"allreduce": "of " + name}))
		default:
			t.Fatalf("Config.%s is a %T: what is a value of that?", name, f.Interface())
		}
	}
	return c
}

// fields has the fields of a struct by name, those of embedded and other structs in it too.
func fields(v reflect.Value, into map[string]any) map[string]any {
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Struct {
			fields(v.Field(i), into)
			continue
		}
		into[v.Type().Field(i).Name] = v.Field(i).Interface()
	}
	return into
}

// Every setting comes to the backends that have one of its name, whatever else they have is known here, and no
// setting is for nobody.
func TestCarried(t *testing.T) {
	cfg := full(t)
	s := settings{Config: cfg, sized: true}
	ours := fields(reflect.ValueOf(cfg), map[string]any{})
	// What this package itself does something with.
	used := []string{"Backend", "Resilient", "Timeout", "FlightDir", "Collectives"}
	for _, b := range []struct {
		name   string
		config any
		ours   map[string]string // settings that have another name there
		own    map[string]any    // what is no setting, and what it is to be
	}{
		{"shm", shmConfig(s), nil, map[string]any{"NoSingleCopy": false}},
		{"tcp", tcpConfig(s), nil, map[string]any{"Launcher": false}},
		{"mpi", mpiConfig(context.Background(), s), map[string]string{"Library": "MPILib"}, map[string]any{"Bounded": true, "Oversubscribed": false}},
	} {
		for name, got := range fields(reflect.ValueOf(b.config), map[string]any{}) {
			from := name
			if other, ok := b.ours[name]; ok {
				from = other
			}
			want, ok := ours[from]
			if used = append(used, from); !ok {
				want, ok = b.own[name]
			}
			if !ok || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: its Config's %s is %v, want %v (known: %v)", b.name, name, got, want, ok)
			}
		}
	}
	for name := range ours {
		if !slices.Contains(used, name) {
			t.Errorf("Config.%s comes to no backend", name)
		}
	}
	s.Coordinator = "launcher@a:1"
	if c := tcpConfig(s); c.Coordinator != "a:1" || !c.Launcher {
		t.Errorf("%s is the coordinator %q, of a launcher: %v", s.Coordinator, c.Coordinator, c.Launcher)
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

// Every setting but Deterministic has a variable, which counts if it is not in Config.
func TestSettleEach(t *testing.T) {
	tests := map[string]struct {
		variable string // NAME=value
		want     any
		config   any // another value; nil where Config cannot say the contrary
	}{
		"Backend":     {"COHORT_BACKEND=tcp", "tcp", "shm"},
		"Rank":        {"COHORT_RANK=2", 2, nil}, // with Size
		"Size":        {"COHORT_SIZE=5", 5, 7},
		"Job":         {"COHORT_JOB=j", "j", "k"},
		"Coordinator": {"COHORT_TCP_COORDINATOR=a:1", "a:1", "b:2"},
		"JoinTimeout": {"COHORT_JOIN_TIMEOUT=5m", 5 * time.Minute, time.Hour},
		"Interface":   {"COHORT_TCP_IFACE=eth7", "eth7", "any"},
		"Ports":       {"COHORT_TCP_PORTS=20000-20100", "20000-20100", "1-2"},
		"Connect":     {"COHORT_TCP_CONNECT=demand", "demand", "start"},
		"Checksum":    {"COHORT_TCP_CHECKSUM=1", true, nil},
		"TLSCert":     {"COHORT_TCP_TLS_CERT=cert", "cert", "c"},
		"TLSKey":      {"COHORT_TCP_TLS_KEY=key", "key", "k"},
		"TLSCA":       {"COHORT_TCP_TLS_CA=ca", "ca", "a"},
		"TLSName":     {"COHORT_TCP_TLS_NAME=name", "name", "n"},
		"Sockets":     {"COHORT_TCP_SHM=0", true, nil},
		"SecretFile":  {"COHORT_SECRET_FILE=secret", "secret", "s"},
		"Resilient":   {"COHORT_RESILIENT=1", true, nil},
		"Timeout":     {"COHORT_TIMEOUT=90s", 90 * time.Second, time.Second},
		"FlightDir":   {"COHORT_FLIGHT_DIR=dir", "dir", "d"},
		"Heartbeat":   {"COHORT_HEARTBEAT=3s", 3 * time.Second, time.Second},
		"Check":       {"COHORT_CHECK=1", true, nil},
		"MPILib":      {"COHORT_MPI_LIB=/lib", "/lib", "/other"},
		"Collectives": {"COHORT_COLLECTIVES=schedule", "schedule", "native"},
		"ThreadLevel": {"COHORT_MPI_THREAD=single", "single", "funneled"},
		"CUDA":        {"COHORT_MPI_CUDA=on", "on", "off"},
		"EagerLimit":  {"COHORT_MPI_EAGER=11", 11, 12},
		"BufferSize":  {"COHORT_MPI_BUFFER=13", 13, 14},
		"Tuning":      {"COHORT_MPI_TUNING=bcast=ring", map[string]string{"bcast": "ring"}, map[string]string{"scan": "line"}},
		"Profiling":   {"COHORT_MPI_PROFILE=1", true, nil},
	}
	place := []string{"COHORT_RANK=2", "COHORT_SIZE=5"} // neither goes without the other
	for name := range fields(reflect.ValueOf(Config{}), map[string]any{}) {
		c, ok := tests[name]
		if !ok {
			if name != "Deterministic" {
				t.Errorf("which variable is for Config.%s?", name)
			}
			continue
		}
		for _, given := range []any{nil, c.config} {
			var cfg Config
			want := c.want
			if given != nil {
				reflect.ValueOf(&cfg).Elem().FieldByName(name).Set(reflect.ValueOf(given))
				want = given
			}
			env := []string{c.variable}
			if name == "Rank" || name == "Size" {
				env = place
			}
			s, err := settle(&cfg, envOf(env...))
			got := reflect.ValueOf(s.Config).FieldByName(name).Interface()
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, and %s=%v in Config: %v, %v, want %v", strings.Join(env, " "), name, given, got, err, want)
			}
			if fmt.Sprint(want) == fmt.Sprint(reflect.Zero(reflect.TypeOf(want))) {
				t.Errorf("%s: %v would be there anyhow", name, want)
			}
		}
	}
}
