// Package pod finds the place of a pod in an Indexed Job of Kubernetes, plain or of a JobSet.
//
// Such a pod has its number in JOB_COMPLETION_INDEX and the host name JOB-INDEX. The Jobs of a JobSet are numbered too, JOB
// is then SET-NAME-NUMBER. With a headless service as its subdomain
// it has a name in DNS too, JOB-INDEX.SERVICE.NAMESPACE.svc.DOMAIN, which kubelet writes to the pod's /etc/hosts.
package pod

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	Index    = "JOB_COMPLETION_INDEX" // the variable with a pod's number
	Replicas = "COHORT_REPLICAS"      // the variable with the number of Jobs, all alike, that the ranks are pods of
	Port     = "7117"                 // of rank 0, unless COHORT_TCP_COORDINATOR has another
)

// Place is the place of a pod in a Job, as its names say it.
type Place struct {
	Job   string // its name: JOB.SERVICE.NAMESPACE.svc.DOMAIN, JOB without NUMBER if there are several
	First string // the name of pod 0, with the last dot, so that resolvers need not try the search list
	Rank  int
}

// Find returns the place of the pod with an index, one of size. replicas is the value of Replicas, or empty, and hosts the
// text of /etc/hosts.
func Find(index, size int, replicas, hostname, hosts string) (Place, error) {
	short, domain, full := strings.Cut(hostname, ".")
	for _, name := range strings.Fields(hosts) {
		if first, rest, ok := strings.Cut(name, "."); ok && !full && first == short {
			domain, full = rest, true
		}
	}
	job, ok := strings.CutSuffix(short, fmt.Sprint("-", index))
	switch {
	case !ok:
		return Place{}, fmt.Errorf("the host name of this pod is %q, want JOB-%d, its Job's name and its index (%s): the pod has a host name "+
			"of its own, or its node's network", short, index, Index)
	case !full:
		return Place{}, fmt.Errorf("this pod has no name in DNS: /etc/hosts has no %s.SERVICE; make a headless service for the Job, "+
			"and name it as subdomain in the pod template", short)
	}
	if replicas == "" || replicas == "1" {
		return Place{job + "." + domain, job + "-0." + domain + ".", index}, nil
	}
	at := strings.LastIndexByte(job, '-')
	set, number := job[:max(at, 0)], -1
	if n, err := strconv.ParseUint(job[at+1:], 10, 31); err == nil {
		number = int(n)
	}
	all, err := strconv.Atoi(replicas)
	if err != nil || all < 1 || size%all != 0 || number < 0 || number >= all || index >= size/all {
		return Place{}, fmt.Errorf("pod %d of Job %q: %s is %q and COHORT_SIZE is %d; want the number of Jobs, each called SET-NAME-NUMBER "+
			"and with the same number of pods, and the number of all pods", index, job, Replicas, replicas, size)
	}
	return Place{set + "." + domain, set + "-0-0." + domain + ".", number*(size/all) + index}, nil
}

// Files returns the last arguments of Find for this process. A text that cannot be read is empty.
func Files() (hostname, hosts string) {
	hostname, _ = os.Hostname()
	b, _ := os.ReadFile("/etc/hosts")
	return hostname, string(b)
}
