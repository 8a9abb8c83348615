package mpifind

import (
	"fmt"
	"strings"
)

// Family is one of the binary interfaces (ABI) of MPI libraries: the widths of handles, the layout
// of MPI_Status, the values of constants.
type Family uint8

// The families that cohort supports.
const (
	Unknown  Family = iota
	MPICH           // MPICH 3.1 and later, Intel MPI, Cray MPICH, MVAPICH2
	OpenMPI         // Open MPI 4 and later, and its derivatives
	Standard        // the ABI of MPI-5, of any vendor (libmpi_abi)
)

// String returns the family's name.
func (f Family) String() string {
	switch f {
	case MPICH:
		return "MPICH"
	case OpenMPI:
		return "Open MPI"
	case Standard:
		return "MPI-5 standard ABI"
	}
	return "unknown"
}

// Library is a file that holds, or should hold, an MPI library.
type Library struct {
	Path   string // the file, by its soname if that is a link to it
	Soname string // its soname
	Name   string // the name it was found by
	Family Family
	// Runtime is the family whose launchers start programs of this library: Family itself, and the
	// vendor's for Standard (Unknown if the file does not show it).
	Runtime Family
	Vendor  string // "MPICH", "Open MPI", "Intel MPI", …; empty if unknown
	Version string // the vendor's, such as "4.1.4"; empty if unknown
	Problem string // why it cannot be loaded here; empty if it can
}

// String describes the library: "Open MPI 4.1.4 (/usr/lib/libmpi.so.40)".
func (l Library) String() string { return fmt.Sprintf("%s (%s)", l.Title(), l.Path) }

// Title is the vendor and version, as far as they are known.
func (l Library) Title() string {
	name := l.Vendor
	if name == "" {
		name = l.Family.String()
		if l.Family == Unknown {
			name = "a library of unknown make"
		}
	}
	if l.Version != "" {
		name += " " + l.Version
	}
	if l.Family == Standard {
		name += ", standard ABI"
	}
	return name
}

// Fits reports whether a launcher of a family can start programs of this library as one job.
// Unknown fits everything.
func (l Library) Fits(launcher Family) bool {
	return launcher == Unknown || l.Runtime == Unknown || l.Runtime == launcher
}

// list lists libraries for an error.
func list(libs []Library) string {
	var names []string
	for _, l := range libs {
		text := l.String()
		if l.Problem != "" {
			text = l.Path + " (" + l.Problem + ")"
		}
		names = append(names, text)
	}
	return strings.Join(names, ", ")
}

// Unusable is the error if libraries were found, and none can be loaded, or the one that was does not see the other ranks.
type Unusable struct{ Err error }

// Error implements error.
func (u *Unusable) Error() string { return u.Err.Error() }

// Unwrap returns the error of a program that needs a library.
func (u *Unusable) Unwrap() error { return u.Err }
