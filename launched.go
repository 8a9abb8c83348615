package cohort

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/pmi"
	"github.com/cohort-hpc/cohort/topo"
)

// hasKeyValueSpace reports whether the launcher has a key-value space, in which the ranks find each other.
func (s *settings) hasKeyValueSpace(env environment) bool {
	return pmi.Find(pmi.Environment(env)) != nil
}

// withoutMPI returns the backend by which the ranks of a launcher join without an MPI library, "" if there is none. It is
// shm only if the launcher says that all ranks are on one node.
func (s *settings) withoutMPI(env environment) string {
	job := mpifind.Job(env)
	switch {
	case !s.hasKeyValueSpace(env) && job.Rank < 0:
		return ""
	case !s.hasKeyValueSpace(env) && job.LocalSize == job.Size && lookup("shm").missing == "":
		return "shm"
	case lookup("tcp").missing == "":
		return "tcp"
	}
	return ""
}

// launched takes the place of this process in its job from the launcher, where the settings do not say it. leave is
// called when the ranks have joined, or cannot.
func (s *settings) launched(ctx context.Context, name string, env environment) (leave func(), err error) {
	leave = func() {}
	if s.placed != unplaced || name != "tcp" && name != "shm" {
		return leave, nil
	}
	means := pmi.Find(pmi.Environment(env))
	if means == nil {
		return leave, s.byNumber(name, mpifind.Launched(env), env)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.JoinTimeout, backend.JoinLimit))
	defer cancel()
	space, err := means.Open(ctx)
	if err != nil {
		return nil, initFault("%v", err)
	}
	s.Rank, s.Size, s.placed, s.Job = space.Rank(), space.Size(), placed, s.named(space.Job())
	s.reach()
	open := true
	leave = func() {
		if open {
			_ = space.Close() // the ranks need it no more
		}
		open = false
	}
	s.share = func(ctx context.Context, text string) (string, error) {
		defer leave()
		text, err := pmi.Share(ctx, space, text)
		if err != nil {
			err = initFault("%v: %v", means, err)
		}
		return text, err
	}
	return leave, nil
}

// reach chooses the interface at which rank 0 listens, in all worlds, if the launcher passes its address on: the
// loopback interface (Interface is empty) if all ranks are on this node.
func (s *settings) reach() {
	if s.TCP.Coordinator == "" && s.TCP.Interface == "" && thisJob().LocalSize != s.Size {
		s.TCP.Interface = "any"
	}
}

// named returns the job's name with that of the launch: COHORT_JOB may be the same in two steps of an allocation.
func (s *settings) named(launch string) string { return strings.TrimSpace(s.Job + " " + launch) }

// byNumber is launched for a launcher that only numbers its ranks, by variables. The job has the launcher's name for
// the launch. On one node, the ranks meet by that name. On several, they meet on tcp at an address that all of them
// derive from the variables, with a secret that the user gives them.
func (s *settings) byNumber(name string, l *mpifind.Launcher, env environment) error {
	job := mpifind.Job(env)
	if name == "shm" && job.LocalSize != l.Size {
		return initFault("backend shm needs all ranks on one node, but of %d ranks, started by %v, %d are on this one (0: the launcher does not say); use backend tcp",
			l.Size, l, job.LocalSize)
	}
	var lacks []string
	if s.Job == "" && job.Launch == "" {
		lacks = append(lacks, "COHORT_JOB to a name that no other job has")
	}
	s.Job = s.named(job.Launch)
	if name == "tcp" {
		if s.TCP.Coordinator = s.meetingPoint(job); s.TCP.Coordinator == "" {
			lacks = append(lacks, "COHORT_TCP_COORDINATOR to HOST:PORT, where HOST is the node of rank 0")
		}
		if s.TCP.SecretFile == "" && s.secret == "" {
			lacks = append(lacks, "COHORT_SECRET_FILE to a file with a secret (openssl rand -hex 32), or COHORT_SECRET")
		}
	}
	if lacks != nil {
		note := ""
		if err := pmi.Missing(pmi.Environment(env)); err != nil {
			note = "; " + err.Error()
		}
		return initFault("rank %d of %d, started by %v, can join over %s if you set, on all ranks, %s; "+
			"or start the program with mpiexec of MPICH or srun --mpi=pmi2, which need none of this%s",
			l.Rank, l.Size, l, name, strings.Join(lacks, ", and "), note)
	}
	if pid := s.startedBy(strconv.Itoa(l.Rank), env); pid != "" {
		return initFault("process %s is rank %d of %d, started by %v, and has started this program; start it with cohort run, or without the launcher's variables",
			pid, l.Rank, l.Size, l)
	}
	s.Rank, s.Size, s.placed = l.Rank, l.Size, numbered
	return nil
}

// meetingPoint returns the address at which rank 0 of a job listens, "" if the variables do not say on which node that is.
func (s *settings) meetingPoint(job *topo.Job) string {
	given, partly := strings.CutPrefix(s.TCP.Coordinator, ":")
	if given != "" && !partly {
		return given
	}
	host := ""
	switch {
	case job.LocalSize == job.Size:
		host = "localhost"
	case job.Launcher == "srun" && len(job.Hosts) > 0: // others may pass on the list of an allocation that they use in part
		host = job.Hosts[0]
	default:
		return ""
	}
	port := given
	if ports := cmp.Or(job.Ports, s.TCP.Ports); port == "" && ports != "" {
		// The last one: the ranks of the node take theirs from the first on.
		port = strings.TrimSpace(ports[strings.LastIndexAny(ports, ",-")+1:])
	}
	if port == "" {
		h := fnv.New32a()
		h.Write([]byte(s.Job))
		port = fmt.Sprint(20000 + h.Sum32()%12000) // below the ports that systems give to connections
	}
	return host + ":" + port
}
