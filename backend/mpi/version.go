package mpi

import (
	"cmp"
	"strings"

	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// release is a library's version in comparable form: numbers, and whether it precedes the final
// release of these numbers. The zero value is an unknown version.
type release struct {
	numbers [4]int
	pre     int // 0 for a final version; below for an alpha, beta or candidate
	known   bool
}

// parseRelease reads a version as libraries write it: "4.0.2", "5.0.0rc12", "4.2.0b1", "2021.18.0",
// "8.1.25.17", "4.1.4-3". Any other text is an unknown version.
func parseRelease(s string) release {
	s = strings.TrimPrefix(strings.TrimSpace(s), "v")
	var r release
	for i := range r.numbers {
		n, rest, ok := number(s)
		if !ok {
			break
		}
		r.numbers[i], r.known = n, true
		s = rest
		if !strings.HasPrefix(s, ".") {
			break
		}
		s = s[1:]
	}
	if !r.known {
		return release{}
	}
	for i, stage := range []string{"a", "b", "rc"} { // in the order of their release
		if rest, ok := strings.CutPrefix(s, stage); ok {
			if n, _, ok := number(rest); ok {
				const most = 1000
				r.pre = (i-3)*most + min(n, most-1)
			}
		}
	}
	return r
}

// number reads the digits at the start of s.
func number(s string) (n int, rest string, ok bool) {
	const most = 1 << 30
	i := 0
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9' && n < most/10; i++ {
		n = 10*n + int(s[i]-'0')
	}
	return n, s[i:], i > 0
}

// compare returns a number below, at, or above 0 for a release before, at, or
// after another.
func (r release) compare(o release) int {
	for i, n := range r.numbers {
		if c := cmp.Compare(n, o.numbers[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(r.pre, o.pre)
}

// within reports whether r is at or after from and before before. An empty bound is none. An
// unknown release is within every range, so that every defect and setting applies to it.
func (r release) within(from, before string) bool {
	if !r.known {
		return true
	}
	return (from == "" || r.compare(parseRelease(from)) >= 0) &&
		(before == "" || r.compare(parseRelease(before)) < 0)
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

// identify returns the vendor and version in the text of MPI_Get_library_version, empty if it has
// no known one.
func identify(text string) (vendor, version string) {
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
		if !parseRelease(after[:end]).known {
			return v.vendor, ""
		}
		return v.vendor, after[:end]
	}
	return "", ""
}

// maker is the maker of a library, as far as settings and defects differ.
type maker uint8

const (
	makeUnknown maker = iota // a library of the standard ABI, of any maker
	makeMPICH
	makeIntel
	makeCray
	makeMVAPICH2 // before 3.0, with its own settings
	makeMVAPICH
	makeUnknownMPICH // a library with MPICH's ABI
	makeOpenMPI
	makeUnknownOpenMPI // a library with Open MPI's ABI, such as IBM Spectrum MPI
)

func familyName(f mpifind.Family) string {
	switch f {
	case mpifind.MPICH:
		return "mpich"
	case mpifind.OpenMPI:
		return "openmpi"
	case mpifind.Standard:
		return "standard"
	}
	return ""
}

// makerOf returns the maker for a vendor's name, or else for the ABI family: mpich, openmpi or
// standard.
func makerOf(family, vendor string, r release) maker {
	vendor = strings.ToLower(vendor)
	has := func(s string) bool { return strings.Contains(vendor, s) }
	switch {
	case has("intel"):
		return makeIntel
	case has("cray"):
		return makeCray
	case has("mvapich2"), has("mvapich") && r.known && r.compare(parseRelease("3.0a1")) < 0:
		return makeMVAPICH2
	case has("mvapich"):
		return makeMVAPICH
	case has("mpich"):
		return makeMPICH
	case has("spectrum"):
		return makeUnknownOpenMPI
	case has("open mpi"), has("openmpi"):
		return makeOpenMPI
	}
	switch family {
	case "mpich":
		return makeUnknownMPICH
	case "openmpi":
		return makeUnknownOpenMPI
	}
	return makeUnknown
}

// mpich and openmpi report whether a library contains, or may contain, code of MPICH or Open MPI.
func (m maker) mpich() bool   { return m <= makeUnknownMPICH }
func (m maker) openmpi() bool { return m == makeUnknown || m >= makeOpenMPI }

var makerNames = [...]string{
	"this MPI library", "MPICH", "Intel MPI", "Cray MPICH", "MVAPICH2", "MVAPICH", "this library of the MPICH family",
	"Open MPI", "this library of the Open MPI family",
}

// String returns the name for messages.
func (m maker) String() string { return makerNames[m] }
