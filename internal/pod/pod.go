// Package pod finds the job of a pod of an Indexed Job of Kubernetes, plain or of a JobSet.
//
// Such a pod has its number in JOB_COMPLETION_INDEX and the host name JOB-INDEX. With a headless service as its subdomain
// it has a name in DNS too, JOB-INDEX.SERVICE.NAMESPACE.svc.DOMAIN, which kubelet writes to the pod's /etc/hosts.
package pod

import (
	"fmt"
	"os"
	"strings"
)

const (
	Index = "JOB_COMPLETION_INDEX" // the variable with a pod's number
	Port  = "7117"                 // of rank 0, unless COHORT_TCP_COORDINATOR has another
)

// A Job is what the names of a pod say of its job.
type Job struct {
	Name  string // JOB.SERVICE.NAMESPACE.svc.DOMAIN
	First string // the name of pod 0, with the last dot, so that resolvers need not try the search list
}

// Find returns the job of the pod with an index. hosts is the text of /etc/hosts.
func Find(index int, hostname, hosts string) (Job, error) {
	short, domain, full := strings.Cut(hostname, ".")
	for _, name := range strings.Fields(hosts) {
		if first, rest, ok := strings.Cut(name, "."); ok && !full && first == short {
			domain, full = rest, true
		}
	}
	job, ok := strings.CutSuffix(short, fmt.Sprint("-", index))
	switch {
	case !ok:
		return Job{}, fmt.Errorf("the host name of this pod is %q, want JOB-%d, its Job's name and its index (%s): the pod has a host name "+
			"of its own, or its node's network", short, index, Index)
	case !full:
		return Job{}, fmt.Errorf("this pod has no name in DNS: /etc/hosts has no %s.SERVICE; make a headless service for the Job, "+
			"and name it as subdomain in the pod template", short)
	}
	return Job{job + "." + domain, job + "-0." + domain + "."}, nil
}

// Files returns the last arguments of Find for this process. A text that cannot be read is empty.
func Files() (hostname, hosts string) {
	hostname, _ = os.Hostname()
	b, _ := os.ReadFile("/etc/hosts")
	return hostname, string(b)
}
