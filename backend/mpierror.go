package backend

import "fmt"

// MPIError is an error that an MPI library returned.
type MPIError struct {
	Class    int    // the class (MPI_Error_class), in the library's numbering
	Code     int    // the error code that the library returned
	Text     string // the text of MPI_Error_string
	Sentinel error  // the sentinel for the class, from the table of the library's ABI
}

// Error implements error.
func (e *MPIError) Error() string {
	return fmt.Sprintf("%v: MPI error %d (class %d): %s", e.Unwrap(), e.Code, e.Class, e.Text)
}

// Unwrap returns the sentinel, or ErrInternal if the table has none.
func (e *MPIError) Unwrap() error {
	if e.Sentinel == nil {
		return ErrInternal
	}
	return e.Sentinel
}
