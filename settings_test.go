package cohort

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"
)

// envOf returns an environment of variables NAME=value.
func envOf(pairs ...string) environment {
	return func(name string) (string, bool) {
		for _, p := range pairs {
			if k, v, _ := strings.Cut(p, "="); k == name {
				return v, true
			}
		}
		return "", false
	}
}

// field returns a field of a Config by its path, such as TCP.TLS.Cert.
func field(c *Config, path string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(path, ".") {
		v = v.FieldByName(name)
	}
	return v
}

// fields collects the fields of a struct, those of structs in it by their paths.
func fields(v reflect.Value, path string, into map[string]any) map[string]any {
	for i := range v.NumField() {
		name := path + v.Type().Field(i).Name
		if v.Field(i).Kind() == reflect.Struct {
			fields(v.Field(i), name+".", into)
		} else {
			into[name] = v.Field(i).Interface()
		}
	}
	return into
}

// Every field has a variable, which applies unless Config sets the field.
func TestEachVariableFillsItsField(t *testing.T) {
	tests := map[string]struct {
		variable string // NAME=value
		want     any
		config   any // a value set in Config; nil where Config cannot override the variable
	}{
		"Backend":         {"COHORT_BACKEND=tcp", "tcp", "shm"},
		"Rank":            {"COHORT_RANK=2", 2, nil}, // with Size
		"Size":            {"COHORT_SIZE=5", 5, 7},
		"Job":             {"COHORT_JOB=j", "j", "k"},
		"Resilient":       {"COHORT_RESILIENT=1", true, nil},
		"Timeout":         {"COHORT_TIMEOUT=90s", 90 * time.Second, time.Second},
		"Heartbeat":       {"COHORT_HEARTBEAT=3s", 3 * time.Second, time.Second},
		"JoinTimeout":     {"COHORT_JOIN_TIMEOUT=5m", 5 * time.Minute, time.Hour},
		"FlightDir":       {"COHORT_FLIGHT_DIR=dir", "dir", "d"},
		"Check":           {"COHORT_CHECK=1", true, nil},
		"Deterministic":   {"COHORT_DETERMINISTIC=1", true, nil},
		"Collectives":     {"COHORT_COLLECTIVES=schedule", CollectivesSchedule, CollectivesNative},
		"TCP.Coordinator": {"COHORT_TCP_COORDINATOR=a:1", "a:1", "b:2"},
		"TCP.Interface":   {"COHORT_TCP_IFACE=eth7", "eth7", "any"},
		"TCP.Ports":       {"COHORT_TCP_PORTS=20000-20100", "20000-20100", "1-2"},
		"TCP.SecretFile":  {"COHORT_SECRET_FILE=secret", "secret", "s"},
		"TCP.Connect":     {"COHORT_TCP_CONNECT=demand", ConnectOnDemand, ConnectAtStart},
		"TCP.Checksum":    {"COHORT_TCP_CHECKSUM=1", true, nil},
		"TCP.Sockets":     {"COHORT_TCP_SHM=0", true, nil},
		"TCP.TLS.Cert":    {"COHORT_TCP_TLS_CERT=cert", "cert", "c"},
		"TCP.TLS.Key":     {"COHORT_TCP_TLS_KEY=key", "key", "k"},
		"TCP.TLS.CA":      {"COHORT_TCP_TLS_CA=ca", "ca", "a"},
		"TCP.TLS.Name":    {"COHORT_TCP_TLS_NAME=name", "name", "n"},
		"MPI.Lib":         {"COHORT_MPI_LIB=/lib", "/lib", "/other"},
		"MPI.ThreadLevel": {"COHORT_MPI_THREAD=single", ThreadSingle, ThreadFunneled},
		"MPI.CUDA":        {"COHORT_MPI_CUDA=on", CUDAOn, CUDAOff},
		"MPI.EagerLimit":  {"COHORT_MPI_EAGER=11", 11, 12},
		"MPI.BufferSize":  {"COHORT_MPI_BUFFER=13", 13, 14},
		"MPI.Tuning": {"COHORT_MPI_TUNING=allreduce=ring, bcast=knomial_2",
			map[string]string{"allreduce": "ring", "bcast": "knomial_2"}, map[string]string{"scan": "line"}},
		"MPI.Profiling": {"COHORT_MPI_PROFILE=1", true, nil},
	}
	place := []string{"COHORT_RANK=2", "COHORT_SIZE=5"} // neither is allowed alone
	for path := range fields(reflect.ValueOf(Config{}), "", map[string]any{}) {
		c, ok := tests[path]
		if !ok {
			t.Errorf("the test has no variable for Config.%s", path)
			continue
		}
		env := []string{c.variable}
		if path == "Rank" || path == "Size" {
			env = place
		}
		for _, set := range []any{nil, c.config} {
			var cfg Config
			want := c.want
			if set != nil {
				field(&cfg, path).Set(reflect.ValueOf(set))
				want = set
			}
			s, err := resolve(&cfg, envOf(env...))
			got := field(&s.Config, path).Interface()
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, with Config.%s=%v: got %v, %v, want %v", strings.Join(env, " "), path, set, got, err, want)
			}
		}
		if s, err := resolve(nil, envOf()); err != nil || !field(&s.Config, path).IsZero() && path != "Backend" {
			t.Errorf("without variables Config.%s is %v, %v, want the zero value", path, field(&s.Config, path), err)
		}
	}
	if len(tests) < len(new(Config).variables())+2 {
		t.Errorf("the test has %d fields, the table %d", len(tests), len(new(Config).variables())+2)
	}
}

func TestSettingsDoNotShareTheCallersTuning(t *testing.T) {
	tuning := map[string]string{"barrier": "tree"}
	s, err := resolve(&Config{MPI: MPIConfig{Tuning: tuning}}, envOf())
	tuning["barrier"] = "changed"
	if err != nil || !maps.Equal(s.MPI.Tuning, map[string]string{"barrier": "tree"}) {
		t.Errorf("got %v, %v", s.MPI.Tuning, err)
	}
}

func TestHeartbeatBelowLimitIsRefused(t *testing.T) {
	for _, c := range []struct {
		cfg  time.Duration
		env  string
		want time.Duration
	}{
		{0, "", 0}, {0, "2s", 2 * time.Second}, {0, "off", -1}, {time.Second, "off", time.Second},
		{-1, "2s", -1}, {0, "100ms", 100 * time.Millisecond},
	} {
		s, err := resolve(&Config{Heartbeat: c.cfg}, envOf("COHORT_HEARTBEAT="+c.env))
		if err != nil || s.Heartbeat != c.want {
			t.Errorf("%v and %q: %v, %v, want %v", c.cfg, c.env, s.Heartbeat, err, c.want)
		}
	}
}

// An error gives the variable or the field, its value, and what is allowed.
func TestBadSettingsAreNamed(t *testing.T) {
	for _, c := range []struct{ variables, text string }{
		{"COHORT_RANK=1", `COHORT_RANK is "1" and COHORT_SIZE is ""; set both`},
		{"COHORT_SIZE=2", `COHORT_RANK is "" and COHORT_SIZE is "2"; set both`},
		{"COHORT_RANK=2 COHORT_SIZE=2", "rank 2 of a job of 2 ranks (COHORT_RANK, COHORT_SIZE)"},
		{"COHORT_RANK=-1 COHORT_SIZE=2", "rank -1 of a job of 2 ranks (COHORT_RANK, COHORT_SIZE)"},
		{"COHORT_RANK=a COHORT_SIZE=2", `COHORT_RANK is "a"`},
		{"COHORT_RANK=0 COHORT_SIZE=0", `COHORT_SIZE is "0"`},
		{"COHORT_RANK=0 COHORT_SIZE=99999999999999999999", `"99999999999999999999"`},
		{"COHORT_TIMEOUT=5", `COHORT_TIMEOUT is "5"; want a duration of 0 or more, such as 30s`},
		{"COHORT_TIMEOUT=-5s", `COHORT_TIMEOUT is "-5s"`},
		{"COHORT_JOIN_TIMEOUT=-1s", `COHORT_JOIN_TIMEOUT is "-1s"`},
		{"COHORT_HEARTBEAT=never", `COHORT_HEARTBEAT is "never"; want a duration of 100ms or more, or off`},
		{"COHORT_HEARTBEAT=99ms", `"99ms"`},
		{"COHORT_HEARTBEAT=0", `COHORT_HEARTBEAT is "0"`},
		{"COHORT_HEARTBEAT=-1s", `"-1s"`},
		{"COHORT_CHECK=yes", `COHORT_CHECK is "yes"; want 0 or 1`},
		{"COHORT_TCP_SHM=yes", `COHORT_TCP_SHM is "yes"; want 0 or 1`},
		{"COHORT_TCP_CONNECT=later", `COHORT_TCP_CONNECT is "later"; want start or demand`},
		{"COHORT_COLLECTIVES=fast", `COHORT_COLLECTIVES is "fast"; want native or schedule`},
		{"COHORT_MPI_THREAD=many", `COHORT_MPI_THREAD is "many"; want multiple, serialized, funneled or single`},
		{"COHORT_MPI_THREAD=MULTIPLE", `"MULTIPLE"`},
		{"COHORT_MPI_CUDA=1", `COHORT_MPI_CUDA is "1"; want auto, on or off`},
		{"COHORT_MPI_EAGER=64k", `COHORT_MPI_EAGER is "64k"; want a number of bytes`},
		{"COHORT_MPI_EAGER=-1", `"-1"`},
		{"COHORT_MPI_BUFFER=99999999999999999999", `"99999999999999999999"`},
		{"COHORT_MPI_TUNING=ring", `COHORT_MPI_TUNING contains "ring"; want operation=algorithm`},
		{"COHORT_MPI_TUNING=allreduce=ring,", `contains ""; want operation=algorithm`},
		{"COHORT_MPI_TUNING=Allreduce=ring", `contains the operation "Allreduce"; want barrier, bcast,`},
		{"COHORT_MPI_TUNING=send=ring", `scan or exscan`},
		{"COHORT_MPI_TUNING=allreduce=", `the algorithm "" for allreduce`},
		{"COHORT_MPI_TUNING=allreduce=a=b", `the algorithm "a=b" for allreduce`},
		{"COHORT_MPI_TUNING=bcast=a,bcast=b", `bcast twice`},
	} {
		if _, err := resolve(nil, envOf(strings.Fields(c.variables)...)); !errors.Is(err, ErrInit) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %q", c.variables, err, c.text)
		}
	}
	for _, c := range []struct {
		cfg  Config
		text string
	}{
		{Config{Size: 2, Rank: 2}, "rank 2 of a job of 2 ranks (Config.Rank, Config.Size)"},
		{Config{Timeout: -1}, "Config.Timeout is -1ns; want"},
		{Config{Heartbeat: 1}, "Config.Heartbeat is 1ns; want"},
		{Config{Collectives: "x"}, `Config.Collectives is "x"; want native or schedule`},
		{Config{MPI: MPIConfig{ThreadLevel: "x"}}, `Config.MPI.ThreadLevel is "x"; want`},
		{Config{MPI: MPIConfig{EagerLimit: -5}}, "Config.MPI.EagerLimit is -5; want"},
		{Config{MPI: MPIConfig{Tuning: map[string]string{"isend": "a"}}}, `"isend"`},
		{Config{MPI: MPIConfig{Tuning: map[string]string{"bcast": "A"}}}, `"A"`},
	} {
		// Variables with other values do not matter.
		env := envOf("COHORT_TIMEOUT=1s", "COHORT_COLLECTIVES=native", "COHORT_MPI_EAGER=1")
		if _, err := resolve(&c.cfg, env); !errors.Is(err, ErrInit) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.text)
		}
	}
}

// The variables a program joins a job by: whatever they say, the settings make sense, or the error
// is ErrInit.
func FuzzSettings(f *testing.F) {
	f.Add("shm", "1", "4", "job", "30s", "", "native", "0", "")
	f.Add("", "", "", "", "", "", "", "", "")
	f.Add("tcp", "0", "2", "j", "1h", "launcher@127.0.0.1:7", "schedule", "1", "allreduce=ring,bcast=binomial")
	f.Add("", "-1", "2", "", "-1s", ":", "both", "yes", "=")
	f.Add("mpi", "2", "2", "", "1", "x", "", "", ",")
	f.Add("", "9223372036854775807", "9223372036854775808", "", "9999999h", "", "", "", "a==b")
	f.Fuzz(func(t *testing.T, backend, rank, size, job, timeout, coordinator, collectives, check, tuning string) {
		vars := map[string]string{"COHORT_BACKEND": backend, "COHORT_RANK": rank, "COHORT_SIZE": size, "COHORT_JOB": job,
			"COHORT_TIMEOUT": timeout, "COHORT_TCP_COORDINATOR": coordinator, "COHORT_COLLECTIVES": collectives,
			"COHORT_CHECK": check, "COHORT_MPI_TUNING": tuning}
		env := environment(func(name string) (string, bool) { v, ok := vars[name]; return v, ok })
		s, err := resolve(nil, env)
		if err != nil {
			if !errors.Is(err, ErrInit) {
				t.Fatalf("%v is no ErrInit", err)
			}
			return
		}
		if (s.placed == placed) != (rank != "" && size != "") || s.placed == placed && (s.Rank < 0 || s.Rank >= s.Size) || s.Timeout < 0 {
			t.Fatalf("rank %q, size %q, timeout %q are %+v", rank, size, timeout, s)
		}
		if name, _ := s.choose(env); name == "" {
			t.Fatalf("backend %q: none is chosen", backend)
		}
	})
}
