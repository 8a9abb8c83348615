package cohort

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// A pod of an Indexed Job of Kubernetes, plain or of a JobSet, has its number in JOB_COMPLETION_INDEX and the host name
// JOB-INDEX. With a headless service as its subdomain it has a name in DNS too,
// JOB-INDEX.SERVICE.NAMESPACE.svc.DOMAIN, which kubelet writes to the pod's /etc/hosts.

const (
	envPod = "JOB_COMPLETION_INDEX"

	podPort     = "7117"           // of rank 0, unless COHORT_TCP_COORDINATOR has another
	podPatience = 10 * time.Minute // until all pods have joined: nodes may have to be started, and images pulled

	// statusAgain is Main's status in a pod whose rank ends because of others (EX_TEMPFAIL of sysexits.h).
	statusAgain = 75
)

// rank returns the variable that says which rank this process is, and its value.
func (e environment) rank() (name, value string) {
	if r := e.get("COHORT_RANK"); r != "" || e.get("COHORT_SIZE") == "" || e.get(envPod) == "" {
		return "COHORT_RANK", r
	}
	return envPod, e.get(envPod)
}

// pod completes the settings of a rank that is a pod: the job's name, where the ranks meet, and how long they wait.
// hostname and hosts are those of the pod, hosts the text of /etc/hosts.
func (s *settings) pod(hostname, hosts string) error {
	s.JoinTimeout, s.replaced = cmp.Or(s.JoinTimeout, podPatience), true
	port, named := podPort, s.TCP.Coordinator
	if p, ok := strings.CutPrefix(named, ":"); ok {
		port, named = p, ""
	}
	if named != "" && s.Job != "" {
		return nil
	}
	const instead = "; see docs/kubernetes.md, or set COHORT_JOB and COHORT_TCP_COORDINATOR=HOST:PORT"
	short, domain, full := strings.Cut(hostname, ".")
	for _, name := range strings.Fields(hosts) {
		if first, rest, ok := strings.Cut(name, "."); ok && !full && first == short {
			domain, full = rest, true
		}
	}
	job, ok := strings.CutSuffix(short, fmt.Sprint("-", s.Rank))
	switch {
	case !ok:
		return initFault("the host name of this pod is %q, want JOB-%d, its Job's name and its index (%s): the pod has a host name "+
			"of its own, or its node's network%s", short, s.Rank, envPod, instead)
	case !full:
		return initFault("this pod has no name in DNS: /etc/hosts has no %s.SERVICE; make a headless service for the Job, "+
			"and name it as subdomain in the pod template%s", short, instead)
	}
	s.Job = cmp.Or(s.Job, job+"."+domain)
	if named == "" {
		s.TCP.Coordinator = job + "-0." + domain + ".:" + port // the last dot: resolvers need not try the search list
	}
	return nil
}

// podFiles returns the arguments of pod for this process. A text that cannot be read is empty.
func podFiles() (hostname, hosts string) {
	hostname, _ = os.Hostname()
	b, _ := os.ReadFile("/etc/hosts")
	return hostname, string(b)
}

// exitStatus is what Main exits with after an error. A pod of a Job ends with a status of its own if that was not for
// what its rank did: a rank is lost, or has not come, or the pod has been asked to end (ctx).
func exitStatus(ctx context.Context, err error, env environment) int {
	name, _ := env.rank()
	late := errors.Is(err, ErrInit) && (errors.Is(err, ErrTimeout) || errors.Is(err, ErrCanceled))
	if name == envPod && (ctx.Err() != nil || late || errors.Is(err, ErrPeerLost)) {
		return statusAgain
	}
	return 1
}
