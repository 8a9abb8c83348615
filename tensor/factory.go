package tensor

import (
	"context"
	"errors"

	"github.com/cohort-hpc/cohort"
)

// Factory makes the communicator of a job by one backend.
type Factory struct {
	// Name is the backend's: local, shm, tcp, or mpi.
	Name string

	// Priority says which of the backends that are available is to be preferred: the one with the highest.
	Priority int

	why error
}

// Available returns nil if this process, as it was started, can use the backend, and else why not. To
// find out, nothing was initialised, and no library loaded.
func (f Factory) Available() error { return f.why }

// Factories returns the factories of all backends, available or not, those with the highest priority
// first. cfg is what [Factory.New] would get, and may be nil.
func Factories(cfg *cohort.Config) []Factory {
	var all []Factory
	for _, b := range cohort.Backends(cfg) {
		all = append(all, Factory{b.Name, b.Priority, b.Err})
	}
	return all
}

// Select returns the factory of the backend with a name, or the available one with the highest priority if the name is empty
// or auto.
//
// Errors: [cohort.ErrInit] if there is no such backend; if it is not available, or none is, what Available says.
func Select(name string, cfg *cohort.Config) (Factory, error) {
	var why []error
	for _, f := range Factories(cfg) {
		switch {
		case name == "" || name == "auto":
			if f.why == nil {
				return f, nil
			}
			why = append(why, f.why)
		case f.Name == name && f.why != nil:
			return Factory{}, failed("select", f.why)
		case f.Name == name:
			return f, nil
		}
	}
	if len(why) > 0 {
		return Factory{}, failed("select", errors.Join(why...))
	}
	return Factory{}, failed("select", fault(cohort.ErrInit, "there is no backend %q: allowed are auto, mpi, tcp, shm and local", name))
}

// New joins the job this process was started in, and returns the world and a communicator for tensors
// of its ranks. Close the communicator first, and then the world. Either configuration may be nil;
// the backend is the factory's.
//
// Collective: all processes of the job call it, once.
//
// Errors: those of [cohort.Init] and [NewComm].
func (f Factory) New(ctx context.Context, cfg *cohort.Config, how *Config) (*cohort.Comm, *Comm, error) {
	var own cohort.Config
	if cfg != nil {
		own = *cfg
	}
	own.Backend = f.Name
	world, err := cohort.Init(ctx, &own)
	if err != nil {
		return nil, nil, err
	}
	c, err := NewComm(world, how)
	if err != nil {
		return nil, nil, errors.Join(err, world.Close())
	}
	return world, c, nil
}
