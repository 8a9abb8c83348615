package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/pod"
	"github.com/cohort-hpc/cohort/topo"
)

// pod reports the place that a pod finds in its Kubernetes Job. The last arguments are those of pod.Find, and a lookup of
// names.
func (d *diagnosis) pod(env func(string) (string, bool), n *topo.Node, hostname, hosts string, lookup func(context.Context, string) ([]string, error)) {
	const group, page = "pod", "docs/kubernetes.md has a manifest"
	text, _ := env(pod.Index)
	if text == "" {
		return
	}
	index, err := strconv.Atoi(text)
	all, _ := env("COHORT_SIZE")
	of, errSize := strconv.Atoi(all)
	replicas, _ := env(pod.Replicas)
	place, missing := pod.Find(index, of, replicas, hostname, hosts)
	switch {
	case all == "":
		d.add(group, "rank", warn, fmt.Sprintf("%s=%s, and COHORT_SIZE is not set", pod.Index, text), "set it to the Job's completions")
	case err != nil || errSize != nil || index >= of:
		d.add(group, "rank", warn, fmt.Sprintf("%s=%s, COHORT_SIZE=%s", pod.Index, text, all), "COHORT_SIZE must be the Job's completions")
	case missing == nil:
		d.add(group, "rank", ok, fmt.Sprintf("%d of %d", place.Rank, of), "")
	}
	at, _ := env("COHORT_TCP_COORDINATOR")
	if at == "" || strings.HasPrefix(at, ":") {
		if missing != nil {
			d.add(group, "rank 0", warn, missing.Error(), page)
		}
		at = cmp.Or(place.First, at) + cmp.Or(at, ":"+pod.Port)
	}
	if host, _, err := meet.ParseCoordinator(at); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if found, err := lookup(ctx, host); err != nil {
			d.add(group, "rank 0", warn, fmt.Sprintf("%s: %v", at, err), "pod 0 does not run, or is not ready, or the service has another name or selector")
		} else {
			d.add(group, "rank 0", ok, fmt.Sprintf("%s is %s", at, strings.Join(found, ", ")), "")
		}
	}
	file, _ := env("COHORT_SECRET_FILE")
	given, _ := env("COHORT_SECRET")
	from := "COHORT_SECRET"
	if file != "" {
		from = file
		_, err = meet.ReadSecretFile(file)
	} else {
		_, err = meet.ReadSecret(strings.NewReader(given))
	}
	switch {
	case file == "" && given == "":
		d.add(group, "secret", warn, "none", "set COHORT_SECRET_FILE to a mounted Secret; "+page)
	case err != nil:
		d.add(group, "secret", warn, err.Error(), "set "+from+" from a Secret; "+page)
	default:
		d.add(group, "secret", ok, from, "")
	}
	limits := []string{"no limit on memory", "no limit on processor time"}
	if n.Limits.Memory > 0 {
		limits[0] = size(n.Limits.Memory) + " of memory"
	}
	if n.Limits.CPU > 0 {
		limits[1] = fmt.Sprintf("%.4g processors' worth of time", n.Limits.CPU)
	}
	d.add(group, "limits", ok, strings.Join(limits, ", "), "")
}
