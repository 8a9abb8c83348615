package pool

import (
	"errors"
	"fmt"
	"os"
)

// Setting is an environment variable that sets how many threads a library starts.
type Setting struct {
	Name string
	// Value is the variable's now.
	Value string
	// Quiet is the value with which the library starts no threads of its own.
	Quiet string
	// Readers are the libraries that read it.
	Readers string
	// Set reports that it was not set before.
	Set bool
}

// Differs reports whether the user had set something else, which was left alone.
func (s Setting) Differs() bool { return s.Value != s.Quiet }

// String is such as "OMP_NUM_THREADS=4 (not 1: OpenMP may start threads of its own)".
func (s Setting) String() string {
	if s.Differs() {
		return fmt.Sprintf("%s=%s (not %s: %s may start threads of its own)", s.Name, s.Value, s.Quiet, s.Readers)
	}
	return s.Name + "=" + s.Value
}

// quieting are the variables that are known. HiGHS reads none itself: its threads
// are options, which programs that use it often take from these two.
var quieting = []Setting{
	{Name: "OMP_NUM_THREADS", Quiet: "1", Readers: "OpenMP"},
	{Name: "MKL_NUM_THREADS", Quiet: "1", Readers: "Intel MKL"},
	{Name: "OPENBLAS_NUM_THREADS", Quiet: "1", Readers: "OpenBLAS"},
	{Name: "GOTO_NUM_THREADS", Quiet: "1", Readers: "OpenBLAS and GotoBLAS"},
	{Name: "BLIS_NUM_THREADS", Quiet: "1", Readers: "BLIS"},
	{Name: "VECLIB_MAXIMUM_THREADS", Quiet: "1", Readers: "Apple Accelerate"},
	{Name: "NUMEXPR_NUM_THREADS", Quiet: "1", Readers: "NumExpr"},
	{Name: "RAYON_NUM_THREADS", Quiet: "1", Readers: "libraries in Rust"},
	{Name: "HIGHS_PARALLEL", Quiet: "off", Readers: "programs with HiGHS"},
	{Name: "HIGHS_THREADS", Quiet: "1", Readers: "programs with HiGHS"},
}

// QuietSolvers sees to it that solvers, and the linear algebra below them, start no
// threads of their own beside the pool's: a rank with 8 workers would else get 64.
// It sets those of the variables that libraries read for that which are not set,
// or empty, leaves the others alone, and returns all of them, so that a program can
// report what the user wanted otherwise (Setting.Differs).
//
// Libraries read them when they are loaded, or when they first need threads:
// QuietSolvers comes before that, and before goroutines that use the environment. A
// library that the program is linked with, not one it loads, may have read them
// already.
//
// Variables are looked up with lookup and set with set; nil are os.LookupEnv and
// os.Setenv.
func QuietSolvers(lookup func(name string) (string, bool), set func(name, value string) error) ([]Setting, error) {
	if lookup == nil {
		lookup = os.LookupEnv
	}
	if set == nil {
		set = os.Setenv
	}
	settings := make([]Setting, 0, len(quieting))
	var errs []error
	for _, s := range quieting {
		s.Value, _ = lookup(s.Name)
		if s.Value == "" {
			if err := set(s.Name, s.Quiet); err != nil {
				errs = append(errs, fmt.Errorf("pool: setting %s: %w", s.Name, err))
			} else {
				s.Value, s.Set = s.Quiet, true
			}
		}
		settings = append(settings, s)
	}
	return settings, errors.Join(errs...)
}
