package pool

import (
	"errors"
	"fmt"
	"os"
)

// Setting is an environment variable that sets the number of threads of a library.
type Setting struct {
	Name string
	// Value is the variable's value after QuietSolvers.
	Value string
	// Quiet is the value with which the library starts no threads.
	Quiet string
	// Readers are the libraries that read the variable.
	Readers string
	// Set reports that QuietSolvers has set it.
	Set bool
}

// Differs reports whether the user had set another value, which QuietSolvers keeps.
func (s Setting) Differs() bool { return s.Value != s.Quiet }

// String formats a setting, for example "OMP_NUM_THREADS=4 (not 1: OpenMP may start its own
// threads)".
func (s Setting) String() string {
	if s.Differs() {
		return fmt.Sprintf("%s=%s (not %s: %s may start its own threads)", s.Name, s.Value, s.Quiet, s.Readers)
	}
	return s.Name + "=" + s.Value
}

// quieting lists the known variables. HiGHS itself reads none: its threads are options, which
// programs often take from the last two.
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

// QuietSolvers makes solvers and linear algebra libraries start no threads besides the pool's;
// otherwise a rank with 8 workers could get 64 threads. It sets those variables of the libraries
// that are unset or empty. It returns all of them, so that a program can report where the user
// wanted something else (Setting.Differs).
//
// Libraries read the variables when they are loaded or first need threads. Call QuietSolvers before
// that, and before goroutines use the environment. Libraries linked with the program may have read
// them already.
//
// lookup reads a variable and set changes it; nil means os.LookupEnv and os.Setenv.
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
				errs = append(errs, fmt.Errorf("pool: set %s: %w", s.Name, err))
			} else {
				s.Value, s.Set = s.Quiet, true
			}
		}
		settings = append(settings, s)
	}
	return settings, errors.Join(errs...)
}
