package cohort

// MPIHandle returns the MPI_Comm on which c sends messages, for a C library that wants one. In a cgo program
// that is C.MPI_Comm(h) where the type is a number (MPICH), and *(*C.MPI_Comm)(unsafe.Pointer(&h)) everywhere.
// Link the program against the library that cohort loads.
//
// The handle is valid until c is closed. MPI functions return their errors on it and do not end the program. A
// receive on c can take messages that C code sends on the handle, so pass a library the handle of a Dup of c. C
// code that frees the handle, or changes its error handler, breaks c.
//
// Not collective; errors: [ErrNotSupported] on other backends than mpi; [ErrComm], [ErrClosed].
func (c *Comm) MPIHandle() (uintptr, error) {
	h, err := c.handle()
	if err != nil {
		return 0, c.failed("mpihandle", err)
	}
	return h, nil
}

// handle returns the MPI_Comm of an open communicator.
func (c *Comm) handle() (uintptr, error) {
	if err := c.base().Usable(); err != nil {
		return 0, err
	}
	h := mpiHandle(c.base().Backend())
	if h == 0 {
		return 0, fault(ErrNotSupported, "backend "+c.Backend()+" has no MPI_Comm; start the job with an MPI launcher")
	}
	return h, nil
}

// FromMPIHandle returns a communicator with the ranks of the MPI_Comm h, in their order, such as one that a C
// library has made. It does not receive messages sent on h. Closing it does not free h. h must be a valid
// handle: MPI does not define what happens with any other.
//
// Collective over the ranks of h, as [Comm.CreateGroup] on the world with tag 0.
//
// Errors: [ErrNotSupported] on other backends than mpi; [ErrInit] if this process has no world;
// [ErrComm] for a handle that the library rejects, and for one with ranks outside the world; those of
// CreateGroup.
//
// Deadline: that of the world.
func FromMPIHandle(h uintptr) (*Comm, error) {
	world := self.open()
	if world == nil {
		return nil, world.failed("frommpihandle", fault(ErrInit, "this process has no world; call Init first"))
	}
	_, err := world.handle()
	if err == nil && h == 0 {
		err = fault(ErrComm, "the handle is 0; pass that of a communicator")
	}
	var members []int
	if err == nil {
		members, err = mpiMembers(world.base().Backend(), h)
	}
	if err != nil {
		return nil, world.failed("frommpihandle", err)
	}
	g, err := world.Group().Incl(members...)
	if err != nil {
		return nil, world.failed("frommpihandle", fault(ErrComm, "the MPI_Comm has ranks that are not in this job"))
	}
	return world.CreateGroup(g, 0)
}
