package main

import (
	"os"
	"strings"
	"testing"
)

// TestDoctorSaysHowRanksStart looks for the means of starting in ranks of launchers.
func TestDoctorSaysHowRanksStart(t *testing.T) {
	pals := "PALS_NRANKS=2 PALS_RANKID=1 PALS_LOCAL_RANKID=1 PALS_APID=9f-3 "
	for _, c := range []struct {
		name, env string
		want      []string // no lines without any
	}{
		{"no launcher", "", nil},
		{"one process", "PALS_NRANKS=1 PALS_RANKID=0", nil},
		{"one node", pals + "PALS_LOCAL_SIZE=2 COHORT_BACKEND=shm", []string{
			"  none  PMI                neither PMI_FD nor PMI_PORT is set\n",
			"  ok    variables          Cray PALS (PALS_NRANKS=2): rank 1 of 2 of launch 9f-3, on this node 2\n",
			"  ok    takes              backend shm, through its variables\n",
		}},
		{"two nodes", pals + "PALS_LOCAL_SIZE=1 COHORT_BACKEND=tcp", []string{
			"  fail  takes              tcp: rank 1 of 2, started by Cray PALS (PALS_NRANKS=2), can join over tcp if you set, on all ranks, COHORT_TCP_COORDINATOR",
		}},
		{"PMI", "PMI_FD=7 PMI_RANK=1 PMI_SIZE=2 COHORT_BACKEND=tcp", []string{
			"  ok    PMI                PMI-1 (PMI_FD=7)\n",
			"  ok    takes              backend tcp, through PMI-1\n",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for v := range strings.FieldsSeq(c.env) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			var d diagnosis
			d.start(os.LookupEnv)
			text := d.text()
			if c.want == nil && len(d.all) > 0 {
				t.Errorf("want nothing:\n%s", text)
			}
			for _, want := range c.want {
				if !strings.Contains(text+"\n", want) {
					t.Errorf("want %q in\n%s", want, text)
				}
			}
		})
	}
}
