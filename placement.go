package cohort

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// entry says how this process joins one world of its job. Each world has another one.
type entry struct {
	placed    placement
	share     func(ctx context.Context, text string) (string, error) // tells all ranks the text of rank 0, if the launcher can
	id        *int                                                   // of this process, for its launcher; nil: the rank is a goroutine
	podWorlds *int                                                   // in a pod: how many worlds it has been in, and then the most of any rank
	first     firstWorld                                             // in a later world
	worlds    comm.Worlds                                            // before and after the one to join
}

// A placement says whether Rank and Size are known.
//
//	placement  event                                                          next
//	unplaced   Config, or COHORT_RANK and COHORT_SIZE, have them (place)      placed
//	           the launcher's key-value space has them (launched)             placed
//	           the variables of another launcher have them (byNumber)         numbered
//
// On local and mpi a rank may stay unplaced, because the backend knows it. The settings of a later world have the placement of
// the first ones.
type placement uint8

const (
	unplaced placement = iota
	placed
	numbered // programs that this rank starts inherit the launcher's variables, not COHORT_RANK
)

// firstWorld is what a later world of a job keeps of the first one. Certificates have the names of the first world's ranks.
type firstWorld struct {
	job         string // its name; "" in the first world itself
	coordinator string // its TCP.Coordinator: rank 0 of a later world listens on the same interface
	ranks       []int  // which rank of it each rank is; nil: the same
}

// setsRank reports whether the program says which rank this is.
func (c *Config) setsRank() bool { return c != nil && c.Size != 0 }

// place determines which rank of how many this process is.
func (s *settings) place(env environment) error {
	source := "Config.Rank, Config.Size"
	if s.Size == 0 {
		size := env.get("COHORT_SIZE")
		name, rank := env.rank()
		switch {
		case size == "" && rank == "":
			return nil
		case size == "" || rank == "":
			return initFault("COHORT_RANK is %q and COHORT_SIZE is %q; set both or neither", rank, size)
		}
		source = name + ", COHORT_SIZE"
		var err1, err2 error
		s.Size, err1 = strconv.Atoi(size)
		s.Rank, err2 = strconv.Atoi(rank)
		if err1 != nil || err2 != nil || s.Size < 1 {
			return initFault("%s is %q and COHORT_SIZE is %q; want numbers, the size above 0", name, rank, size)
		}
	}
	if s.Size < 0 || s.Rank < 0 || s.Rank >= s.Size {
		return initFault("rank %d of a job of %d ranks (%s); want a rank from 0 to the size less 1", s.Rank, s.Size, source)
	}
	s.placed = placed
	return nil
}

// inherited returns an error if the rank is that of a process that has joined the job, and started this one.
func (s *settings) inherited(cfg *Config, env environment) error {
	name, rank := env.rank()
	pid := s.startedBy(rank, env)
	if cfg.setsRank() || s.Size == 1 || pid == "" {
		return nil
	}
	return initFault("%s=%s is that of process %s, which has joined job %q and started this program; unset %[1]s and COHORT_SIZE for it (env -u %[1]s -u COHORT_SIZE PROGRAM), or start it with cohort run",
		name, rank, pid, s.Job)
}

// markEnvironment makes this process known as the rank to its launcher and to programs that it starts.
func (s *settings) markEnvironment(id int, env environment) {
	s.id = &id
	_, rank := env.rank()
	if s.placed == numbered {
		rank = strconv.Itoa(s.Rank)
	}
	if rank == "" {
		return
	}
	if err := os.Setenv(envJoined, fmt.Sprint(os.Getpid(), " ", s.joined(rank))); err != nil {
		s.notes = append(s.notes, fmt.Sprintf("programs that this rank starts may take themselves for it: %v", err))
	}
}

// envJoined is set in the environment of a rank that has joined its job, for programs that it starts: they inherit
// COHORT_RANK, and are not that rank.
const envJoined = "COHORT_JOINED"

// joined follows the process number in the value of envJoined.
func (s *settings) joined(rank string) string { return "rank " + rank + " of " + s.Job }

// startedBy returns the process that has joined the job as the rank and has started this one, "" if there is none.
func (s *settings) startedBy(rank string, env environment) (pid string) {
	pid, of, _ := strings.Cut(env.get(envJoined), " ")
	if of != s.joined(rank) || pid == strconv.Itoa(os.Getpid()) {
		return ""
	}
	return pid
}

// isForeign reports whether the environment is that of a rank, and this process is not that rank. The launcher, folders and
// files that it names are then for that rank alone.
func (s *settings) isForeign(cfg *Config, env environment) bool {
	_, rank := env.rank()
	size, l := env.get("COHORT_SIZE"), mpifind.Launched(env)
	switch {
	case s.startedBy(rank, env) != "":
		return true
	case rank == "" && l == nil, rank != "" && s.Backend == "mpi": // no rank of a cohort run
		_, run := env(flight.EnvKept)
		return run || env.get(envJoined) != ""
	case !cfg.setsRank():
		return false
	case size != "":
		return rank != strconv.Itoa(s.Rank) || size != strconv.Itoa(s.Size) || s.Job != env.get("COHORT_JOB")
	}
	return l != nil && l.Size > 1 && (l.Rank != s.Rank || l.Size != s.Size)
}
