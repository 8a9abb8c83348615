package mpiquirks

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// Release is a library's version in comparable form: numbers, and whether it precedes the final
// release of these numbers. The zero value is an unknown version.
type Release struct {
	numbers [4]int
	pre     int // 0 for a final version; below for an alpha, beta or candidate
	known   bool
}

var release = regexp.MustCompile(`^v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?\.?(?:(a|b|rc)(\d+))?`)

// ParseRelease reads a version as libraries write it: "4.0.2", "5.0.0rc12", "4.2.0b1", "2021.18.0",
// "8.1.25.17", "4.1.4-3". Any other text is an unknown version.
func ParseRelease(s string) Release {
	m := release.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return Release{}
	}
	r := Release{known: true}
	for i := range r.numbers {
		r.numbers[i], _ = strconv.Atoi(m[i+1]) // 0 where there is none
	}
	if stage := slices.Index([]string{"a", "b", "rc"}, m[5]); stage >= 0 { // in the order of their release
		const most = 1000
		n, _ := strconv.Atoi(m[6]) // a number that is too long is a large one
		r.pre = (stage-3)*most + min(n, most-1)
	}
	return r
}

// compare returns a number below, at, or above 0 for a release before, at, or
// after another.
func (r Release) compare(o Release) int {
	for i, n := range r.numbers {
		if c := cmp.Compare(n, o.numbers[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(r.pre, o.pre)
}

// within reports whether r is at or after from and before before. An empty bound is none. An
// unknown release is within every range, so that every defect and setting applies to it.
func (r Release) within(from, before string) bool {
	if !r.known {
		return true
	}
	return (from == "" || r.compare(ParseRelease(from)) >= 0) &&
		(before == "" || r.compare(ParseRelease(before)) < 0)
}

// vendors are texts of MPI_Get_library_version, with the vendor of each. The first match counts:
// the text of a derivative of MPICH may name MPICH too.
var vendors = []struct{ text, vendor string }{
	{"Intel(R) MPI Library", "Intel MPI"},
	{"CRAY MPICH version", "Cray MPICH"},
	{"MVAPICH2 Version", "MVAPICH"},
	{"MVAPICH Version", "MVAPICH"},
	{"IBM Spectrum MPI", "IBM Spectrum MPI"},
	{"Open MPI", "Open MPI"},
	{"MPICH Version", "MPICH"},
}

// Identify returns the vendor and version in the text of MPI_Get_library_version, empty if it has
// no known one.
func Identify(text string) (vendor, version string) {
	for _, v := range vendors {
		_, after, ok := strings.Cut(text, v.text)
		if !ok {
			continue
		}
		after = strings.TrimLeft(after, " \t:v")
		end := strings.IndexAny(after, " \t\r\n,(")
		if end < 0 {
			end = len(after)
		}
		if !ParseRelease(after[:end]).known {
			return v.vendor, ""
		}
		return v.vendor, after[:end]
	}
	return "", ""
}

// Implementation is an implementation of MPI, as far as settings and defects differ.
type Implementation uint8

const (
	Unknown        Implementation = iota // a library of the standard ABI, which may be any of them
	MPICH                                // of its own project
	Intel                                // Intel MPI
	Cray                                 // Cray MPICH
	MVAPICH2                             // before 3.0, with its own settings
	MVAPICH                              // from 3.0 on
	UnknownMPICH                         // a library with MPICH's ABI
	OpenMPI                              // Open MPI
	UnknownOpenMPI                       // a library with Open MPI's ABI, such as IBM Spectrum MPI
)

// Of returns the implementation for a vendor's name, or else for the ABI family.
func Of(family mpifind.Family, vendor string, r Release) Implementation {
	vendor = strings.ToLower(vendor)
	has := func(s string) bool { return strings.Contains(vendor, s) }
	switch {
	case has("intel"):
		return Intel
	case has("cray"):
		return Cray
	case has("mvapich2"), has("mvapich") && r.known && r.compare(ParseRelease("3.0a1")) < 0:
		return MVAPICH2
	case has("mvapich"):
		return MVAPICH
	case has("mpich"):
		return MPICH
	case has("spectrum"):
		return UnknownOpenMPI
	case has("open mpi"), has("openmpi"):
		return OpenMPI
	}
	switch family {
	case mpifind.MPICH:
		return UnknownMPICH
	case mpifind.OpenMPI:
		return UnknownOpenMPI
	}
	return Unknown
}

// mpich and openmpi report whether a library contains, or may contain, code of MPICH or Open MPI.
func (m Implementation) mpich() bool   { return m <= UnknownMPICH }
func (m Implementation) openmpi() bool { return m == Unknown || m >= OpenMPI }

var implementationNames = [...]string{
	"this MPI library", "MPICH", "Intel MPI", "Cray MPICH", "MVAPICH2", "MVAPICH", "this library of the MPICH family",
	"Open MPI", "this library of the Open MPI family",
}

// String returns the name for messages.
func (m Implementation) String() string { return implementationNames[m] }
