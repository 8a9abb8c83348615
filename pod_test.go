package cohort

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// What kubelet writes to /etc/hosts of the pods of a Job with a headless service, and without one.
const (
	podHosts = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\nfe00::0\tip6-localnet\n" +
		"10.4.1.7\ttrain-3.ranks.lab.svc.cluster.local\ttrain-3\nfd00::7\ttrain-3.ranks.lab.svc.cluster.local\ttrain-3\n"
	loneHosts = "127.0.0.1\tlocalhost\n10.4.1.7\ttrain-3\n"
)

func TestPodFindsItsJob(t *testing.T) {
	const found = "train.ranks.lab.svc.cluster.local train-0.ranks.lab.svc.cluster.local."
	for _, c := range []struct {
		name, hostname, hosts string
		config                Config
		want                  string // job and coordinator, or a part of the error
	}{
		{"plain", "train-3", podHosts, Config{}, found + ":7117"},
		{"a port", "train-3", podHosts, Config{TCP: TCPConfig{Coordinator: ":99"}}, found + ":99"},
		{"setHostnameAsFQDN", "train-3.ranks.lab.svc.cluster.local", "", Config{}, found + ":7117"},
		{"JobSet", "set-train-0-3", strings.ReplaceAll(podHosts, "train-3", "set-train-0-3"), Config{},
			"set-train-0.ranks.lab.svc.cluster.local set-train-0-0.ranks.lab.svc.cluster.local.:7117"},
		{"own names", "node7", loneHosts, Config{Job: "j", TCP: TCPConfig{Coordinator: "launcher@a:1"}}, "j launcher@a:1"},
		{"own job", "train-3", podHosts, Config{Job: "j"}, "j train-0.ranks.lab.svc.cluster.local.:7117"},
		{"no service", "train-3", loneHosts, Config{}, "/etc/hosts has no train-3.SERVICE; make a headless service"},
		{"another's name", "train-3", strings.ReplaceAll(podHosts, "train-3", "train-33"), Config{}, "no train-3.SERVICE"},
		{"host network", "node7", podHosts, Config{}, `is "node7", want JOB-3`},
		{"another index", "train-13", podHosts, Config{}, `is "train-13"`},
	} {
		s := settings{Config: c.config}
		s.Rank = 3
		err := s.pod("", c.hostname, c.hosts)
		switch got := s.Job + " " + s.TCP.Coordinator; {
		case err != nil:
			if !errors.Is(err, ErrInit) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "docs/kubernetes.md") {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
		case got != c.want || s.JoinTimeout != podPatience:
			t.Errorf("%s: %q, %v, want %q, %v", c.name, got, s.JoinTimeout, c.want, podPatience)
		}
	}
}

// The pods of the Jobs of a JobSet that are alike are ranks of one job, those of the first Job first.
func TestPodsOfSeveralJobsAreOneJob(t *testing.T) {
	named := settings{Config: Config{Rank: 3, Size: 4, Job: "j", TCP: TCPConfig{Coordinator: "node1:99"}}}
	if err := named.pod("1", "node7", ""); err != nil || named.Rank != 3 || named.TCP.Coordinator != "node1:99" {
		t.Errorf("one Job on the network of its nodes: rank %d at %s, %v", named.Rank, named.TCP.Coordinator, err)
	}
	for _, c := range []struct {
		job, replicas string
		size, rank    int
		text          string // of the error
	}{
		{"set-ranks-0", "2", 8, 3, ""}, {"set-ranks-1", "2", 8, 7, ""}, {"set-ranks-12", "13", 65, 63, ""}, {"set-ranks-0", "1", 4, 3, ""},
		{"set-ranks-2", "2", 8, 0, `pod 3 of Job "set-ranks-2": COHORT_REPLICAS is "2" and COHORT_SIZE is 8`},
		{"set-ranks-0", "3", 8, 0, `COHORT_REPLICAS is "3"`}, {"set-ranks-0", "4", 8, 0, `COHORT_REPLICAS is "4"`}, {"set-ranks-0", "x", 8, 0, `"x"`},
		{"set-ranks-0", "0", 8, 0, `"0"`}, {"ranks", "2", 8, 0, `"ranks"`}, {"set-", "2", 8, 0, `"set-"`}, {"set-ranks", "2", 8, 0, `"set-ranks"`},
	} {
		s := settings{Config: Config{Rank: 3, Size: c.size, Job: "j"}}
		name := c.job + "-3"
		err := s.pod(c.replicas, name, "10.4.1.7 "+name+".svc.local "+name)
		if c.text != "" {
			if !errors.Is(err, ErrInit) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%+v: %v", c, err)
			}
		} else if err != nil || s.Rank != c.rank || s.TCP.Coordinator != "set-ranks-0-0.svc.local.:7117" || s.Job != "j" {
			t.Errorf("%+v: rank %d of %q at %s, %v", c, s.Rank, s.Job, s.TCP.Coordinator, err)
		}
	}
}

// A pod takes part with its index, other launchers come first, and no pod becomes a world of its own unasked.
func TestPodIndexIsTheRank(t *testing.T) {
	own := []string{"COHORT_JOB=j", "COHORT_TCP_COORDINATOR=a:1", "COHORT_SECRET=s"}
	for _, c := range []struct {
		env     []string
		rank    int
		backend string
		text    string // of the error of settings or backend
	}{
		{append(own, "JOB_COMPLETION_INDEX=3", "COHORT_SIZE=4"), 3, "tcp", ""},
		{append(own, "JOB_COMPLETION_INDEX=3", "COHORT_SIZE=2", "COHORT_RANK=1"), 1, "tcp", ""},
		{append(own, "JOB_COMPLETION_INDEX=4", "COHORT_SIZE=4"), 0, "", "rank 4 of a job of 4"},
		{append(own, "JOB_COMPLETION_INDEX=x", "COHORT_SIZE=4"), 0, "", `JOB_COMPLETION_INDEX is "x" and COHORT_SIZE is "4"`},
		{[]string{"JOB_COMPLETION_INDEX=3"}, 0, "local", "this is pod 3 of a Kubernetes Job"},
		{[]string{"JOB_COMPLETION_INDEX=3", "COHORT_BACKEND=local"}, 0, "local", ""},
		{[]string{"JOB_COMPLETION_INDEX=3", "COHORT_SIZE=4", "COHORT_BACKEND=local"}, 3, "local", "single rank"},
		{append(own, "JOB_COMPLETION_INDEX=3", "COHORT_SIZE=4", "COHORT_JOINED=1 rank 3 of j"), 0, "", "unset JOB_COMPLETION_INDEX and COHORT_SIZE"},
	} {
		env := envOf(c.env...)
		s, err := resolve(nil, env)
		name := ""
		if err == nil {
			name, _ = s.choose(env)
			err = s.unfit(name, env)
		}
		if name != c.backend || c.backend != "" && s.Rank != c.rank || (err == nil) != (c.text == "") || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: rank %d, backend %q, %v", c.env, s.Rank, name, err)
		}
	}
	if s, err := resolve(&Config{Size: 1}, envOf("JOB_COMPLETION_INDEX=3", "COHORT_SIZE=4")); err != nil || s.Rank != 0 || s.JoinTimeout != 0 {
		t.Errorf("Run in a pod: %+v, %v", s, err)
	}
}

// Init takes the secret out of the environment, and keeps it for another Init. A file comes first.
func TestSecretLeavesTheEnvironment(t *testing.T) {
	defer keptSecret.Store(nil)
	t.Setenv(envSecret, "digits")
	takeSecret(osEnv)
	if v, ok := os.LookupEnv(envSecret); ok {
		t.Errorf("the environment has %q", v)
	}
	takeSecret(osEnv) // as another Init does
	if s, err := resolve(nil, osEnv); err != nil || s.secret != "digits" {
		t.Errorf("%q, %v", s.secret, err)
	}
	if s, err := resolve(&Config{TCP: TCPConfig{SecretFile: "f"}}, osEnv); err != nil || s.secret != "" {
		t.Errorf("with a file: %q, %v", s.secret, err)
	}
}

func TestStatusOfPodSaysWhoIsToBlame(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	pod, other := envOf("JOB_COMPLETION_INDEX=3", "COHORT_SIZE=4"), envOf("COHORT_RANK=3", "COHORT_SIZE=4")
	lost := backend.Faultf(backend.ErrPeerLost, "rank 2")
	late := errors.Join(ErrInit, backend.Faultf(backend.ErrTimeout, "1 of 4 ranks did not join"))
	drained := errors.Join(ErrInit, backend.Faultf(backend.ErrCanceled, "1 of 4 ranks did not connect to the others"))
	for _, c := range []struct {
		ctx  context.Context
		err  error
		env  environment
		want int
	}{
		{t.Context(), lost, pod, 75}, {t.Context(), late, pod, 75}, {t.Context(), drained, pod, 75}, {ended, context.Canceled, pod, 75},
		{t.Context(), ErrTimeout, pod, 1}, {t.Context(), ErrMismatch, pod, 1}, {t.Context(), ErrInit, pod, 1},
		{t.Context(), lost, other, 1}, {ended, lost, other, 1},
	} {
		if got := exitStatus(c.ctx, c.err, c.env); got != c.want {
			t.Errorf("%v: status %d, want %d", c.err, got, c.want)
		}
	}
}
