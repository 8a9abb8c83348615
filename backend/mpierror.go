package backend

import "fmt"

// MPIError is an error that an MPI library returned.
type MPIError struct {
	Class    int    // the error's class (MPI_Error_class), in the library's own numbering
	Code     int    // the error code the library returned
	Text     string // what MPI_Error_string says of it
	Sentinel error  // the sentinel the class stands for, found by the table of the library's ABI
}

// Error implements error.
func (e *MPIError) Error() string {
	return fmt.Sprintf("%v: MPI error %d (class %d): %s", e.Unwrap(), e.Code, e.Class, e.Text)
}

// Unwrap returns the sentinel, ErrInternal where the table has none.
func (e *MPIError) Unwrap() error {
	if e.Sentinel == nil {
		return ErrInternal
	}
	return e.Sentinel
}
