package cohort

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
)

// settleMPI fills in what is for the mpi backend alone. Whether the library can
// do it is found out when there is one.
func (s *settings) settleMPI(env environment) error {
	if err := env.choice(&s.ThreadLevel, "COHORT_MPI_THREAD", "multiple", "single", "funneled", "serialized"); err != nil {
		return err
	}
	if err := env.choice(&s.CUDA, "COHORT_MPI_CUDA", "auto", "on", "off"); err != nil {
		return err
	}
	if err := env.bytes(&s.EagerLimit, "COHORT_MPI_EAGER"); err != nil {
		return err
	}
	if err := env.bytes(&s.BufferSize, "COHORT_MPI_BUFFER"); err != nil {
		return err
	}
	if err := env.flag(&s.Profiling, "COHORT_MPI_PROFILE"); err != nil {
		return err
	}
	if s.Tuning == nil {
		var err error
		s.Tuning, err = parseTuning(env.get("COHORT_MPI_TUNING"))
		return err
	}
	s.Tuning = maps.Clone(s.Tuning)
	for _, op := range slices.Sorted(maps.Keys(s.Tuning)) { // sorted: which error comes first
		if err := checkTuning(op, s.Tuning[op]); err != nil {
			return err
		}
	}
	return nil
}

// choice fills in a field that has one of some values, the first where nothing
// says which.
func (e environment) choice(field *string, name string, allowed ...string) error {
	if *field == "" {
		*field = e.get(name)
	}
	if *field == "" {
		*field = allowed[0]
	}
	if !slices.Contains(allowed, *field) {
		return initFault("%s is %q: allowed are %s", name, *field, enumerate(allowed))
	}
	return nil
}

// enumerate writes "a, b and c".
func enumerate(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// bytes fills in a number of bytes that is 0.
func (e environment) bytes(field *int, name string) error {
	if v := e.get(name); *field == 0 && v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return initFault("%s is %q: want a number of bytes", name, v)
		}
		*field = n
	}
	if *field < 0 {
		return initFault("%s is %d: want a number of bytes", name, *field)
	}
	return nil
}

// parseTuning reads what COHORT_MPI_TUNING holds; nil of nothing.
func parseTuning(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	tuning := make(map[string]string)
	for item := range strings.SplitSeq(text, ",") {
		op, algorithm, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok {
			return nil, initFault("COHORT_MPI_TUNING has %q: want operation=algorithm, as in allreduce=ring,bcast=binomial", item)
		}
		if err := checkTuning(op, algorithm); err != nil {
			return nil, err
		}
		if _, twice := tuning[op]; twice {
			return nil, initFault("COHORT_MPI_TUNING has %s twice", op)
		}
		tuning[op] = algorithm
	}
	return tuning, nil
}

// checkTuning checks one choice of an algorithm as far as that goes without the
// library, which alone knows its names.
func checkTuning(op, algorithm string) error {
	if !slices.Contains(tunable, op) {
		return initFault("COHORT_MPI_TUNING has the operation %q: allowed are %s", op, enumerate(tunable))
	}
	odd := func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}
	if algorithm == "" || strings.ContainsFunc(algorithm, odd) {
		return initFault("COHORT_MPI_TUNING has the algorithm %q for %s: want a name of small letters, digits, - and _", algorithm, op)
	}
	return nil
}

// tunable has the operations' names.
var tunable = func() (names []string) {
	for coll := backend.Barrier; coll <= backend.Exscan; coll++ {
		names = append(names, collName(coll, backend.Blocking))
	}
	return names
}()
