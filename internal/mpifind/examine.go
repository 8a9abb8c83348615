package mpifind

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Examine examines one library: a path, or a name without a slash, which is looked up where [Find]
// looks. The error reports that there is no such file. The Problem of
// the Library says what is wrong with a file.
func Examine(path string) (Library, error) {
	return examine(path, os.LookupEnv)
}

func examine(path string, env func(string) (string, bool)) (Library, error) {
	if path == "" {
		return Library{}, errors.New("the library's name is empty")
	}
	if strings.ContainsRune(path, '/') {
		return examineFile(path)
	}
	places := searchPlaces(env)
	for _, p := range places {
		file := filepath.Join(p.folder, path)
		if _, err := os.Stat(file); err == nil {
			return examineFile(file)
		}
	}
	return Library{}, fmt.Errorf("%s: not in any of the %d folders for libraries; give its path", path, len(places))
}

// examineFile reads a file's headers and symbols.
func examineFile(path string) (Library, error) {
	l := Library{Path: path, Name: filepath.Base(path)}
	info, err := os.Stat(path)
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return l, fmt.Errorf("%s: %w", path, err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		if real, err = filepath.Abs(real); err == nil {
			l.Path = real
		}
	}
	if !info.Mode().IsRegular() {
		l.Problem = "not a file"
		return l, nil
	}
	f, err := elf.Open(path)
	if err != nil {
		l.Problem = fmt.Sprintf("not a library, or a damaged one (%v)", err)
		return l, nil
	}
	defer f.Close()
	l.read(f)
	return l, nil
}

// read reads a library's soname and symbols.
func (l *Library) read(f *elf.File) {
	if names, err := f.DynString(elf.DT_SONAME); err == nil && len(names) > 0 {
		l.Soname = names[0]
		l.byname()
	}
	if l.Problem = wrongMachine(f); l.Problem == "" {
		l.Problem = l.readSymbols(f)
	}
}

// byname changes Path to the soname in its folder if that is a link to the same file.
func (l *Library) byname() {
	if strings.ContainsRune(l.Soname, '/') {
		return
	}
	link := filepath.Join(filepath.Dir(l.Path), l.Soname)
	if real, err := filepath.EvalSymlinks(link); err == nil && real == l.Path {
		l.Path = link
	}
}

// own is the header of this program, nil on systems that have no ELF files.
var own = sync.OnceValue(func() *elf.FileHeader {
	path, err := os.Executable()
	if err != nil {
		return nil
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	return &f.FileHeader
})

// wrongMachine returns why a file cannot be loaded into this process, "" if it can.
func wrongMachine(f *elf.File) string {
	if h := own(); h != nil && (f.Machine != h.Machine || f.Class != h.Class || f.Data != h.Data) {
		return fmt.Sprintf("built for another machine: it is for %v (%v, %v), this program is for %v (%v, %v)",
			f.Machine, f.Class, f.Data, h.Machine, h.Class, h.Data)
	}
	if f.Type != elf.ET_DYN {
		return "not a shared library"
	}
	return ""
}

// mpichName matches the sonames of the MPICH ABI: libmpi.so.12, Debian's libmpich.so.12, and Cray's
// of every compiler.
var mpichName = regexp.MustCompile(`^lib(mpi|mpich|mpi_(cray|gnu|intel|aocc|nvidia)[_0-9]*)\.so\.12$`)

// readSymbols reads the family, vendor and version from the dynamic symbols. It returns why the
// file cannot be loaded, "" if it can.
func (l *Library) readSymbols(f *elf.File) string {
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return fmt.Sprintf("its symbols cannot be read (%v)", err)
	}
	var init, self, internal, abi bool
	texts := map[string]elf.Symbol{}
	vendor := ""
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF {
			continue
		}
		switch name := s.Name; {
		case name == "MPI_Init":
			init = true
		case name == "MPI_Abi_get_version":
			abi = true
		case name == "ompi_mpi_comm_self":
			self = true
		case name == "MPII_Version_string" || name == "ompi_version_string":
			texts[name] = s
		case strings.HasPrefix(name, "MPIR_") || strings.HasPrefix(name, "MPIDI_"):
			internal = true
		case strings.HasPrefix(name, "I_MPI_"):
			vendor = "Intel MPI"
		case strings.HasPrefix(name, "MVAPICH2_") || strings.HasPrefix(name, "MV2_"):
			vendor = "MVAPICH2"
		}
	}
	parts := needs(f, "libopen_mpi") // the part of Open MPI 6 that its two ABIs share
	_, mpichText := texts["MPII_Version_string"]
	_, ompiText := texts["ompi_version_string"]
	switch {
	case !init:
		return "not an MPI library: it has no MPI_Init"
	case self || parts && !strings.HasPrefix(l.Soname, "libmpi_abi"):
		l.Family, l.Runtime = OpenMPI, OpenMPI
	case abi && strings.HasPrefix(l.Soname, "libmpi_abi"):
		l.Family = Standard
		if parts || needs(f, "libopen-pal") || ompiText {
			l.Runtime = OpenMPI
		} else if internal || mpichText {
			l.Runtime = MPICH
		}
	case internal || mpichText || mpichName.MatchString(l.Soname):
		l.Family, l.Runtime = MPICH, MPICH
	default:
		return "an MPI library whose ABI is not that of MPICH, Open MPI or MPI-5"
	}
	switch {
	case vendor != "":
		l.Vendor = vendor
	case strings.HasPrefix(l.Soname, "libmpi_ibm"):
		l.Vendor = "IBM Spectrum MPI"
	case l.Runtime == OpenMPI:
		l.Vendor = "Open MPI"
	case strings.Contains(l.Path, "/cray/") || mpichName.MatchString(l.Soname) && strings.Contains(l.Soname, "mpi_"):
		l.Vendor = "Cray MPICH"
	case strings.Contains(l.Path, "/intel/") || strings.Contains(l.Path, "/oneapi/"):
		l.Vendor = "Intel MPI"
	case l.Runtime == MPICH:
		l.Vendor = "MPICH"
	}
	if s, ok := texts["ompi_version_string"]; ok && l.Runtime == OpenMPI {
		l.Version = version(text(f, s))
	} else if s, ok := texts["MPII_Version_string"]; ok && l.Vendor == "MPICH" {
		l.Version = version(text(f, s))
	} else if l.Vendor == "MPICH" {
		l.Version = dated(f)
	} else if parts {
		l.Version = partVersion(filepath.Join(filepath.Dir(l.Path), "libopen_mpi.so.40"))
	}
	return ""
}

// releaseText matches MPICH's texts as they follow each other: the date of the release, the
// version.
var releaseText = regexp.MustCompile(`[0-9]{2}:[0-9]{2}:[0-9]{2} [A-Z]{3,4} [0-9]{4}\x00+([0-9]+\.[0-9]+[0-9A-Za-z.]*)\x00`)

// dated returns the version of an MPICH that has no symbol for it, as from 4.2 on.
func dated(f *elf.File) string {
	section := f.Section(".rodata")
	if section == nil || section.Size > maxLibraryText {
		return ""
	}
	b, err := section.Data()
	if err != nil {
		return ""
	}
	if m := releaseText.FindSubmatch(b); m != nil {
		return string(m[1])
	}
	return ""
}

// maxLibraryText is how much of a library is searched for a text.
const maxLibraryText = 64 << 20

// partVersion returns the version in the library that holds Open MPI 6's code.
func partVersion(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	symbols, _ := f.DynamicSymbols()
	for _, s := range symbols {
		if s.Name == "ompi_version_string" && s.Section != elf.SHN_UNDEF {
			return version(text(f, s))
		}
	}
	return ""
}

// needs reports whether a library depends on another whose name has a prefix.
func needs(f *elf.File, prefix string) bool {
	names, _ := f.ImportedLibraries()
	return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, prefix) })
}

// text returns the beginning of the text that a symbol is the address of.
func text(f *elf.File, s elf.Symbol) string {
	if int(s.Section) >= len(f.Sections) {
		return ""
	}
	section := f.Sections[s.Section]
	// A compressed section cannot be read at an offset. No library has its texts in one.
	if section.ReaderAt == nil || section.Type == elf.SHT_NOBITS || s.Value < section.Addr || s.Value-section.Addr >= section.Size {
		return ""
	}
	b := make([]byte, 128)
	n, _ := section.ReadAt(b, int64(s.Value-section.Addr))
	b, _, _ = bytes.Cut(b[:n], []byte{0})
	return string(b)
}

var number = regexp.MustCompile(`[0-9]+\.[0-9]+[0-9A-Za-z.]*`)

// version returns the first version number in a text.
func version(text string) string { return number.FindString(text) }
