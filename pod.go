package cohort

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/internal/pod"
)

const (
	podPatience = 10 * time.Minute // until all pods have joined: nodes may have to be started, and images pulled

	// statusAgain is Main's status in a pod whose rank ends because of others (EX_TEMPFAIL of sysexits.h).
	statusAgain = 75
)

// rank returns the variable that says which rank this process is, and its value.
func (e environment) rank() (name, value string) {
	if r := e.get("COHORT_RANK"); r != "" || e.get("COHORT_SIZE") == "" || e.get(pod.Index) == "" {
		return "COHORT_RANK", r
	}
	return pod.Index, e.get(pod.Index)
}

// pod completes the settings of a rank that is a pod: the job's name, where the ranks meet, and how long they wait.
// replicas, hostname and hosts are the arguments of pod.Find.
func (s *settings) pod(replicas, hostname, hosts string) error {
	s.JoinTimeout, s.podWorlds = cmp.Or(s.JoinTimeout, podPatience), new(int)
	port, named := pod.Port, s.TCP.Coordinator
	if p, ok := strings.CutPrefix(named, ":"); ok {
		port, named = p, ""
	}
	if named != "" && s.Job != "" && (replicas == "" || replicas == "1") {
		return nil
	}
	place, err := pod.Find(s.Rank, s.Size, replicas, hostname, hosts)
	if err != nil {
		return initFault("%v; see docs/kubernetes.md, or set COHORT_JOB and COHORT_TCP_COORDINATOR=HOST:PORT", err)
	}
	s.Job, s.Rank = cmp.Or(s.Job, place.Job), place.Rank
	if named == "" {
		s.TCP.Coordinator = place.First + ":" + port
	}
	return nil
}

// exitStatus is what Main exits with after an error. A pod of a Job ends with a status of its own if that was not for
// what its rank did: a rank is lost, or has not come, or the pod has been asked to end (ctx).
func exitStatus(ctx context.Context, err error, env environment) int {
	name, _ := env.rank()
	late := errors.Is(err, ErrInit) && (errors.Is(err, ErrTimeout) || errors.Is(err, ErrCanceled))
	if name == pod.Index && (ctx.Err() != nil || late || errors.Is(err, ErrPeerLost)) {
		return statusAgain
	}
	return 1
}
