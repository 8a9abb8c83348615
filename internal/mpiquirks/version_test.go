package mpiquirks

import (
	"slices"
	"testing"
)

// libraryTexts are the starts of libraries' version texts, and what they mean.
var libraryTexts = []struct{ text, vendor, version string }{
	{"MPICH Version:\t3.4.3\nMPICH Release date:\tThu Dec 16 11:20:57 CST 2021\n", "MPICH", "3.4.3"},
	{"MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\nMPICH ABI:\t14:2:2\nMPICH Device:\tch4:ucx\n", "MPICH", "4.0.2"},
	{"MPICH Version:      4.2.0rc3\nMPICH Release date: Fri Jan 26 2024\n", "MPICH", "4.2.0rc3"},
	{"MPICH Version:      5.0.1\nMPICH ABI:          18:0:6\n", "MPICH", "5.0.1"},
	{"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022", "Open MPI", "4.1.4"},
	{"Open MPI v5.0.0rc12, package: Open MPI user@host Distribution, ident: 5.0.0rc12", "Open MPI", "5.0.0rc12"},
	{"Open MPI v6.1.0a1, package: Open MPI user@host Distribution", "Open MPI", "6.1.0a1"},
	{"Intel(R) MPI Library 2021.7 for Linux* OS\n", "Intel MPI", "2021.7"},
	{"Intel(R) MPI Library 2019 Update 9 for Linux* OS\n", "Intel MPI", "2019"},
	{"MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)\nMPI BUILD INFO : Sun Feb 26 15:15 2023\n", "Cray MPICH", "8.1.25.17"},
	{"MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Release date :\tWed March 02 22:00 EST 2022\n", "MVAPICH", "2.3.7"},
	{"MVAPICH Version      :\t3.0\nMVAPICH Release date :\t02/19/2024\n", "MVAPICH", "3.0"},
	{"IBM Spectrum MPI v10.4.0.3, package: IBM Spectrum MPI, ident: 10.4.0.3", "IBM Spectrum MPI", "10.4.0.3"},
	{"MPICH Version:      unreleased development copy\n", "MPICH", ""},
	{"Some other library 3.1", "", ""},
	{"", "", ""},
}

func TestIdentifyReadsVersionTexts(t *testing.T) {
	for _, l := range libraryTexts {
		if vendor, version := Identify(l.text); vendor != l.vendor || version != l.version {
			t.Errorf("Identify(%q) = %q, %q, want %q, %q", l.text, vendor, version, l.vendor, l.version)
		}
	}
}

// releases are versions of each vendor in the order of their release.
var releases = [][]string{
	{"3.4.3", "4.0a1", "4.0b1", "4.0rc3", "4.0", "4.0.2", "4.1.1", "4.1.2", "4.2.0a1", "4.2.0rc3", "4.2.0", "4.2.3", "4.3.0", "4.3.2", "5.0.0rc1", "5.0.0", "5.0.1"},
	{"3.1.6", "4.0.0", "4.0.7", "4.1.0", "4.1.4", "4.1.10", "5.0.0rc2", "5.0.0rc12", "5.0.0", "5.0.10", "6.0.0a1", "6.0.0"},
	{"2018.4.274", "2019", "2019.9.304", "2021.1", "2021.2.0", "2021.7", "2021.10.0", "2021.18"},
	{"7.7.20", "8.0.16", "8.1.4", "8.1.25.9", "8.1.25.17", "8.1.30", "9.0.0"},
}

func TestReleasesAreOrdered(t *testing.T) {
	for _, versions := range releases {
		for i, a := range versions {
			for j, b := range versions {
				want := 0
				switch {
				case i < j:
					want = -1
				case i > j:
					want = 1
				}
				if got := ParseRelease(a).compare(ParseRelease(b)); got != want {
					t.Errorf("%s compared with %s is %d, want %d", a, b, got, want)
				}
			}
		}
	}
	for _, same := range [][2]string{{"4.1.4", "4.1.4-3"}, {"4.1", "4.1.0"}, {"v5.0.1", "5.0.1"}, {" 4.0.2\n", "4.0.2"}} {
		if ParseRelease(same[0]).compare(ParseRelease(same[1])) != 0 {
			t.Errorf("%q and %q are not the same", same[0], same[1])
		}
	}
	for _, none := range []string{"", "unknown", "rc1", ".", "-4"} {
		if ParseRelease(none).known {
			t.Errorf("%q is a version", none)
		}
	}
}

func TestReleaseIsWithinRange(t *testing.T) {
	for _, c := range []struct {
		version, from, before string
		want                  bool
	}{
		{"4.0.2", "4.0", "4.3", true},
		{"4.3.0", "4.0", "4.3", false},
		{"4.3.0b1", "4.0", "4.3", true}, // it came before 4.3
		{"3.4.3", "4.0", "4.3", false},
		{"4.0", "4.0", "", true},
		{"9.9", "", "", true},
		{"", "4.0", "4.3", true}, // not known: it may be so
	} {
		if got := ParseRelease(c.version).within(c.from, c.before); got != c.want {
			t.Errorf("%q within %q and %q is %v", c.version, c.from, c.before, got)
		}
	}
}

func TestImplementationOfVendorAndFamily(t *testing.T) {
	for _, c := range []struct {
		family, vendor, version string
		want                    Implementation
	}{
		{"mpich", "MPICH", "4.0.2", MPICH},
		{"standard", "MPICH", "5.0.1", MPICH}, // its library of the standard ABI
		{"standard", "Open MPI", "6.0.0", OpenMPI},
		{"mpich", "Intel MPI", "2021.7", Intel},
		{"mpich", "Cray MPICH", "8.1.25.17", Cray},
		{"mpich", "MVAPICH", "2.3.7", MVAPICH2},
		{"mpich", "MVAPICH", "3.0", MVAPICH},
		{"mpich", "", "", UnknownMPICH},
		{"mpich", "ParaStation MPI", "5.9", UnknownMPICH},
		{"openmpi", "", "4.1.4", UnknownOpenMPI},
		{"openmpi", "IBM Spectrum MPI", "10.4", UnknownOpenMPI},
		{"standard", "", "", Unknown},
	} {
		if got := Of(families[c.family], c.vendor, ParseRelease(c.version)); got != c.want {
			t.Errorf("Of(%q, %q, %q) = %v (%d), want %v (%d)", c.family, c.vendor, c.version, got, got, c.want, c.want)
		}
	}
	for m := Unknown; int(m) < len(implementationNames); m++ {
		if m.mpich() == m.openmpi() && m != Unknown {
			t.Errorf("%v derives from both or none", m)
		}
	}
	if slices.Contains(implementationNames[:], "") {
		t.Error("an implementation has no name")
	}
}

func FuzzIdentify(f *testing.F) {
	for _, l := range libraryTexts {
		f.Add(l.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vendor, version := Identify(text)
		if version != "" && (vendor == "" || !ParseRelease(version).known) {
			t.Errorf("vendor %q, version %q", vendor, version)
		}
		if r := ParseRelease(text); r.compare(r) != 0 {
			t.Errorf("%q is not itself", text)
		}
	})
}
