package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDoctorDescribesPod(t *testing.T) {
	const hosts = "127.0.0.1 localhost\n10.4.1.7 train-3.ranks.lab.svc.cluster.local train-3\n"
	digits := strings.Repeat("0123456789abcdef", 4)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(digits+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lookup := func(_ context.Context, host string) ([]string, error) {
		if host == "train-0.ranks.lab.svc.cluster.local." {
			return []string{"10.4.1.2", "fd00::2"}, nil
		}
		if host == "set-train-0-0.ranks.lab.svc.cluster.local." {
			return []string{"10.4.1.3"}, nil
		}
		return nil, errors.New("no such host")
	}
	limits := `
  ok    limits             128 MiB of memory, 2.5 processors' worth of time`
	for _, c := range []struct {
		name  string
		env   map[string]string
		hosts string
		want  string
	}{
		{"no pod", nil, hosts, ""},
		{"complete", map[string]string{"JOB_COMPLETION_INDEX": "3", "COHORT_SIZE": "4", "COHORT_SECRET_FILE": secret}, hosts, `pod
  ok    rank               3 of 4
  ok    rank 0             train-0.ranks.lab.svc.cluster.local.:7117 is 10.4.1.2, fd00::2
  ok    secret             ` + secret + limits},
		{"another port, a secret without a file", map[string]string{"JOB_COMPLETION_INDEX": "3", "COHORT_SIZE": "4", "COHORT_SECRET": digits,
			"COHORT_TCP_COORDINATOR": ":99"}, hosts, `pod
  ok    rank               3 of 4
  ok    rank 0             train-0.ranks.lab.svc.cluster.local.:99 is 10.4.1.2, fd00::2
  ok    secret             COHORT_SECRET` + limits},
		{"of two Jobs", map[string]string{"JOB_COMPLETION_INDEX": "3", "COHORT_SIZE": "8", "COHORT_REPLICAS": "2", "COHORT_SECRET": digits},
			strings.ReplaceAll(hosts, "train-3", "set-train-1-3"), `pod
  ok    rank               7 of 8
  ok    rank 0             set-train-0-0.ranks.lab.svc.cluster.local.:7117 is 10.4.1.3
  ok    secret             COHORT_SECRET` + limits},
		{"nothing", map[string]string{"JOB_COMPLETION_INDEX": "3"}, "", `pod
  warn  rank               JOB_COMPLETION_INDEX=3, and COHORT_SIZE is not set
                           → set it to the Job's completions
  warn  rank 0             this pod has no name in DNS: /etc/hosts has no train-3.SERVICE; make a headless service for the Job, and name it as subdomain in the pod template
                           → docs/kubernetes.md has a manifest
  warn  secret             none
                           → set COHORT_SECRET_FILE to a mounted Secret; docs/kubernetes.md has a manifest` + limits},
		{"wrong", map[string]string{"JOB_COMPLETION_INDEX": "3", "COHORT_SIZE": "3", "COHORT_SECRET": "short", "COHORT_TCP_COORDINATOR": "nobody:99"}, hosts, `pod
  warn  rank               JOB_COMPLETION_INDEX=3, COHORT_SIZE=3
                           → COHORT_SIZE must be the Job's completions
  warn  rank 0             nobody:99: no such host
                           → pod 0 does not run, or is not ready, or the service has another name or selector
  warn  secret             the secret of the job: 5 bytes, want 32 random bytes, or 64 hexadecimal digits; openssl rand -hex 32 makes one
                           → set COHORT_SECRET from a Secret; docs/kubernetes.md has a manifest` + limits},
	} {
		var d diagnosis
		hostname := "train-3"
		if strings.Contains(c.hosts, "set-") {
			hostname = "set-train-1-3"
		}
		d.pod(func(name string) (string, bool) {
			v, ok := c.env[name]
			return v, ok
		}, container(t).read(t, "4-7"), hostname, c.hosts, lookup)
		if got := strings.TrimSuffix(d.text(), "ready\n"); got != c.want {
			t.Errorf("%s: got\n%s\n\nwant\n%s", c.name, got, c.want)
		}
	}
}
