package main

import (
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/pmi"
)

// start reports, in a process of a launcher, by which means its ranks can join their job, and which they would take.
func (d *diagnosis) start(env func(string) (string, bool)) {
	const group = "start"
	l, space := mpifind.Launched(env), pmi.Find(env)
	if (l == nil || l.Size <= 1) && space == nil {
		return
	}
	var chosen cohort.BackendInfo
	errs := map[string]error{}
	for _, b := range cohort.Backends(nil) {
		if errs[b.Name] = b.Err; b.Chosen {
			chosen = b
		}
	}
	if err := errs["mpi"]; err == nil {
		d.add(group, "MPI", ok, "a library that fits the launcher is found", "")
	} else {
		d.add(group, "MPI", none, backend.AsFault(err).Text, "")
	}
	through := "its variables"
	if space != nil {
		through = space.Name
		d.add(group, "PMI", ok, space.String(), "")
	} else {
		why := "neither PMI_FD nor PMI_PORT is set"
		if err := pmi.Missing(env); err != nil {
			why += "; " + err.Error()
		}
		d.add(group, "PMI", none, why, "")
	}
	switch job := mpifind.Job(env); {
	case l == nil:
		d.add(group, "variables", none, "none number this process", "")
	case job.Launch == "":
		d.add(group, "variables", ok, fmt.Sprintf("%v: rank %d of %d; none names the launch", l, l.Rank, l.Size), "")
	default:
		d.add(group, "variables", ok, fmt.Sprintf("%v: rank %d of %d of launch %s, on this node %d", l, l.Rank, l.Size, job.Launch, job.LocalSize), "")
	}
	d.takes("takes", chosen.Name, through, chosen.Err)
	if chosen.Name == "mpi" {
		other := "tcp"
		if space == nil && errs["shm"] == nil {
			other = "shm"
		}
		d.takes("without MPI", other, through, errs[other])
	}
}

// takes adds a line on the backend that a program takes under the launcher.
func (d *diagnosis) takes(name, chosen, through string, err error) {
	switch {
	case err != nil && name == "takes":
		d.add("start", name, fail, chosen+": "+backend.AsFault(err).Text, "")
	case err != nil:
		d.add("start", name, none, chosen+": "+backend.AsFault(err).Text, "")
	case chosen == "mpi" || chosen == "local":
		d.add("start", name, ok, "backend "+chosen, "")
	default:
		d.add("start", name, ok, "backend "+chosen+", through "+through, "")
	}
}
