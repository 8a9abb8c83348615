package mpiquirks

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
)

// algorithm is one of a library's algorithms for a collective, by the library's own name.
type algorithm struct {
	name         string
	from, before string // versions that have it
}

// menu lists the algorithms to choose from, in the library's own order.
type menu map[backend.Coll][]algorithm

// choices makes a list of algorithms that every known version has.
func choices(names ...string) []algorithm {
	of := make([]algorithm, len(names))
	for i, n := range names {
		of[i].name = n
	}
	return of
}

// since adds algorithms that a version introduced.
func since(from string, to []algorithm, names ...string) []algorithm {
	for _, n := range names {
		to = append(to, algorithm{name: n, from: from})
	}
	return to
}

// ompiAlgorithms are those of Open MPI's component tuned, in the order of ompi_info of 4.1.4: the
// n-th has number n. Later ones are from the sources. Gatherv and Scatterv have one algorithm each.
var ompiAlgorithms = menu{
	backend.Barrier: choices("linear", "double_ring", "recursive_doubling", "bruck", "two_proc", "tree"),
	backend.Bcast: choices("basic_linear", "chain", "pipeline", "split_binary_tree", "binary_tree", "binomial", "knomial",
		"scatter_allgather", "scatter_allgather_ring"),
	backend.Reduce: choices("linear", "chain", "pipeline", "binary", "binomial", "in-order_binary", "rabenseifner"),
	backend.Allreduce: choices("basic_linear", "nonoverlapping", "recursive_doubling", "ring", "segmented_ring",
		"rabenseifner"),
	backend.ReduceScatterBlock: choices("basic_linear", "recursive_doubling", "recursive_halving", "butterfly"),
	backend.ReduceScatter:      choices("non-overlapping", "recursive_halving", "ring", "butterfly"),
	backend.Gather:             choices("basic_linear", "binomial", "linear_sync"),
	backend.Allgather: since("5.0", choices("linear", "bruck", "recursive_doubling", "ring", "neighbor", "two_proc"),
		"sparbit"),
	backend.Allgatherv: choices("default", "bruck", "ring", "neighbor", "two_proc"),
	backend.Scatter:    choices("basic_linear", "binomial", "linear_nb"),
	backend.Alltoall:   choices("linear", "pairwise", "modified_bruck", "linear_sync", "two_proc"),
	backend.Alltoallv:  choices("basic_linear", "pairwise"),
	backend.Scan:       choices("linear", "recursive_doubling"),
	backend.Exscan:     choices("linear", "recursive_doubling"),
}

// mpichAlgorithms are those of MPICH's blocking collectives within a communicator, as MPI_T of
// 4.0.2 lists them. Later additions and removals are from the sources. MPI_Init fails on a name
// that the library does not have. With nb a reduction runs as a nonblocking one, whose operation any
// call of any thread may apply; only the reduction's own call may come back into Go. So it is not a
// choice for reductions. Nor is noncommutative for ReduceScatter: it ends the process unless the number
// of ranks is a power of two and all counts are equal.
var mpichAlgorithms = menu{
	backend.Barrier: since("4.1", []algorithm{{name: "nb"}, {name: "smp"}, {name: "dissemination", before: "4.1"}},
		"k_dissemination", "recexch"),
	backend.Bcast: since("4.1", choices("binomial", "nb", "smp", "scatter_recursive_doubling_allgather",
		"scatter_ring_allgather"), "tree", "pipelined_tree"),
	backend.Reduce: choices("binomial", "smp", "reduce_scatter_gather"),
	backend.Allreduce: since("4.1", choices("smp", "recursive_doubling", "reduce_scatter_allgather"),
		"tree", "recexch", "ring", "k_reduce_scatter_allgather"),
	backend.ReduceScatterBlock: choices("noncommutative", "recursive_doubling", "pairwise", "recursive_halving"),
	backend.ReduceScatter:      choices("pairwise", "recursive_doubling", "recursive_halving"),
	backend.Gather:             choices("binomial", "nb"),
	backend.Gatherv:            choices("linear", "nb"),
	backend.Allgather:          choices("brucks", "nb", "recursive_doubling", "ring"),
	backend.Allgatherv:         choices("brucks", "nb", "recursive_doubling", "ring"),
	backend.Scatter:            choices("binomial", "nb"),
	backend.Scatterv:           choices("linear", "nb"),
	backend.Alltoall: since("4.1", choices("brucks", "nb", "pairwise", "pairwise_sendrecv_replace", "scattered"),
		"k_brucks"),
	backend.Alltoallv: choices("nb", "pairwise_sendrecv_replace", "scattered"),
	backend.Scan:      choices("smp", "recursive_doubling"),
	backend.Exscan:    choices("recursive_doubling"),
}

// intelAlgorithms are the first of Intel MPI's presets for some collectives, numbered from 1 as in
// its reference. Other numbers are passed on unchanged.
var intelAlgorithms = menu{
	backend.Allreduce: choices("recursive_doubling", "rabenseifner", "reduce_bcast", "topology_reduce_bcast",
		"binomial_gather_scatter", "topology_binomial_gather_scatter", "shumilin_ring", "ring", "knomial"),
	backend.Allgather:  choices("recursive_doubling", "bruck", "ring", "topology_gatherv_bcast", "knomial"),
	backend.Allgatherv: choices("recursive_doubling", "bruck", "ring", "topology_gatherv_bcast"),
	backend.Alltoall:   choices("bruck", "isend_irecv", "pairwise", "plum"),
	backend.Alltoallv:  choices("isend_irecv", "plum"),
}

// algorithms returns the algorithms of an implementation, nil if cohort does not know them.
func algorithms(m Implementation) menu {
	switch m {
	case MPICH:
		return mpichAlgorithms
	case Intel:
		return intelAlgorithms
	case OpenMPI, UnknownOpenMPI:
		return ompiAlgorithms
	}
	return nil
}

// tune returns the variables that choose an algorithm for an operation, none for auto.
func tune(m Implementation, r Release, op, name string) ([]knob, error) {
	coll := collNamed(op)
	if coll == 0 {
		return nil, refuse("Tuning %q: want the name of a collective, such as allreduce", op)
	}
	if name == "auto" {
		return nil, nil
	}
	all := algorithms(m)
	if all == nil {
		return nil, refuse("Tuning %s=%s: cohort does not know the algorithms of %v; set the library's own variables", op, name, m)
	}
	var names []string
	for _, a := range all[coll] {
		if r.within(a.from, a.before) {
			names = append(names, a.name)
		}
	}
	number := slices.Index(names, name) + 1
	if n, err := strconv.Atoi(name); err == nil && n > 0 && m != MPICH && (m == Intel || n <= len(names)) {
		number = n
	}
	if number == 0 {
		if len(names) == 0 {
			return nil, refuse("Tuning %s=%s: cohort knows no choice of algorithms of %v for it; remove the setting", op, name, m)
		}
		return nil, refuse("Tuning %s=%s: %v has %s; choose one of these", op, name, m, strings.Join(names, ", "))
	}
	const why = "Tuning"
	upper := strings.ToUpper(mpiName(coll))
	switch m {
	case MPICH:
		return []knob{{name: "MPIR_CVAR_" + upper + "_INTRA_ALGORITHM", value: name, why: why}}, nil
	case Intel:
		return []knob{{name: "I_MPI_ADJUST_" + upper, value: strconv.Itoa(number), why: why}}, nil
	}
	return []knob{
		{name: "OMPI_MCA_coll_tuned_use_dynamic_rules", value: "1", why: why},
		{name: "OMPI_MCA_coll_tuned_" + mpiName(coll) + "_algorithm", value: names[number-1], why: why},
	}, nil
}

// mpiName returns a collective's name as MPI spells it, without the prefix.
func mpiName(coll backend.Coll) string {
	return strings.NewReplacer("reducescatterblock", "reduce_scatter_block", "reducescatter", "reduce_scatter").Replace(strings.ToLower(coll.String()))
}

// collNamed returns the collective with a name, in any case and with or without MPI's underscores;
// 0 if there is none.
func collNamed(op string) backend.Coll {
	op = strings.ToLower(strings.ReplaceAll(op, "_", ""))
	for coll := backend.Barrier; coll <= backend.Exscan; coll++ {
		if strings.ToLower(coll.String()) == op {
			return coll
		}
	}
	return 0
}
