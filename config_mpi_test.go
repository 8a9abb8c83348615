package cohort

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestSettleMPI(t *testing.T) {
	s, err := settle(nil, envOf("COHORT_MPI_THREAD=funneled", "COHORT_MPI_CUDA=on", "COHORT_MPI_EAGER=65536", "COHORT_MPI_BUFFER=1048576",
		"COHORT_MPI_TUNING=allreduce=ring, bcast=knomial_2", "COHORT_MPI_PROFILE=1"))
	if err != nil || s.ThreadLevel != "funneled" || s.CUDA != "on" || s.EagerLimit != 65536 || s.BufferSize != 1048576 || !s.Profiling ||
		!maps.Equal(s.Tuning, map[string]string{"allreduce": "ring", "bcast": "knomial_2"}) {
		t.Errorf("from the environment: %+v, %v", s.Config, err)
	}
	tuning := map[string]string{"barrier": "tree"}
	s, err = settle(&Config{ThreadLevel: "serialized", CUDA: "off", EagerLimit: 1, BufferSize: 2, Tuning: tuning},
		envOf("COHORT_MPI_THREAD=funneled", "COHORT_MPI_CUDA=on", "COHORT_MPI_EAGER=65536", "COHORT_MPI_BUFFER=7", "COHORT_MPI_TUNING=bcast=ring"))
	if err != nil || s.ThreadLevel != "serialized" || s.CUDA != "off" || s.EagerLimit != 1 || s.BufferSize != 2 || !maps.Equal(s.Tuning, tuning) {
		t.Errorf("Config does not beat the environment: %+v, %v", s.Config, err)
	}
	tuning["barrier"] = "changed later"
	if s.Tuning["barrier"] != "tree" {
		t.Error("the settings share the caller's map")
	}
	if s, err := settle(nil, envOf("COHORT_MPI_PROFILE=0")); err != nil || s.Profiling || s.Tuning != nil || s.EagerLimit != 0 {
		t.Errorf("of nothing: %+v, %v", s.Config, err)
	}
}

// An error names the variable, the value and what is allowed.
func TestSettleMPIErrors(t *testing.T) {
	for _, c := range []struct{ variable, text string }{
		{"COHORT_MPI_THREAD=many", `"many": allowed are multiple, single, funneled and serialized`},
		{"COHORT_MPI_THREAD=MULTIPLE", `"MULTIPLE"`},
		{"COHORT_MPI_CUDA=1", `"1": allowed are auto, on and off`},
		{"COHORT_MPI_EAGER=64k", `"64k": want a number of bytes`},
		{"COHORT_MPI_EAGER=-1", `"-1"`},
		{"COHORT_MPI_BUFFER=99999999999999999999", `"99999999999999999999"`},
		{"COHORT_MPI_PROFILE=yes", `"yes": allowed are 0 and 1`},
		{"COHORT_MPI_TUNING=ring", `"ring": want operation=algorithm`},
		{"COHORT_MPI_TUNING=allreduce=ring,", `"": want operation=algorithm`},
		{"COHORT_MPI_TUNING=Allreduce=ring", `"Allreduce": allowed are barrier, bcast,`},
		{"COHORT_MPI_TUNING=send=ring", `scan and exscan`},
		{"COHORT_MPI_TUNING=allreduce=", `the algorithm "" for allreduce`},
		{"COHORT_MPI_TUNING=allreduce=a=b", `the algorithm "a=b" for allreduce`},
		{"COHORT_MPI_TUNING=allreduce=a b", `the algorithm "a b" for allreduce`},
		{"COHORT_MPI_TUNING=bcast=a,bcast=b", `bcast twice`},
	} {
		_, err := settle(nil, envOf(c.variable))
		name, _, _ := strings.Cut(c.variable, "=")
		if !errors.Is(err, ErrInit) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.variable, err)
		}
	}
	for _, c := range []struct {
		cfg  Config
		text string
	}{
		{Config{ThreadLevel: "x"}, `"x"`}, {Config{CUDA: "yes"}, `"yes"`}, {Config{EagerLimit: -5}, "-5"}, {Config{BufferSize: -6}, "-6"},
		{Config{Tuning: map[string]string{"isend": "a"}}, `"isend"`}, {Config{Tuning: map[string]string{"bcast": "A"}}, `"A"`},
	} {
		if _, err := settle(&c.cfg, envOf()); !errors.Is(err, ErrInit) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}
