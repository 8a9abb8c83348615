package mpifind

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// object is a shared library to write: only what identifies it.
type object struct {
	machine elf.Machine // 0: of this machine
	kind    elf.Type    // 0: a shared library
	soname  string
	needed  []string
	defined []string          // symbols
	used    []string          // symbols of other libraries
	texts   map[string]string // symbols that are the address of a text
}

// bytes returns the file: ELF header, contents of the sections, section headers, in the layouts of
// chapters 4 and 5 of the System V ABI.
func (o object) bytes() []byte {
	machine := cmp.Or(o.machine, own().Machine)
	kind := cmp.Or(o.kind, elf.ET_DYN)
	order := binary.LittleEndian
	var names bytes.Buffer // .dynstr
	name := func(s string) uint64 {
		at := names.Len()
		names.WriteString(s + "\x00")
		return uint64(at)
	}
	name("")
	const base = 0x10000 // address of .rodata
	var text, symbols, dynamic bytes.Buffer
	word := func(b *bytes.Buffer, values ...uint64) { binary.Write(b, order, values) }
	symbol := func(s string, section elf.SectionIndex, value, size uint64) {
		info := byte(elf.STB_GLOBAL)<<4 | byte(elf.STT_OBJECT)
		binary.Write(&symbols, order, elf.Sym64{Name: uint32(name(s)), Info: info, Shndx: uint16(section), Value: value, Size: size})
	}
	symbol("", elf.SHN_UNDEF, 0, 0)
	for _, s := range o.defined {
		symbol(s, 1, base, 0)
	}
	for _, s := range o.used {
		symbol(s, elf.SHN_UNDEF, 0, 0)
	}
	for s, t := range o.texts {
		symbol(s, 1, base+uint64(text.Len()), uint64(len(t)+1))
		text.WriteString(t + "\x00")
	}
	if text.Len() == 0 {
		text.WriteByte(0)
	}
	for _, n := range o.needed {
		word(&dynamic, uint64(elf.DT_NEEDED), name(n))
	}
	if o.soname != "" {
		word(&dynamic, uint64(elf.DT_SONAME), name(o.soname))
	}
	word(&dynamic, uint64(elf.DT_NULL), 0)

	sections := []struct {
		name       string
		kind       elf.SectionType
		addr       uint64
		link, size uint64 // of an entry
		data       []byte
	}{
		{},
		{".rodata", elf.SHT_PROGBITS, base, 0, 0, text.Bytes()},
		{".dynsym", elf.SHT_DYNSYM, 0, 3, 0, symbols.Bytes()},
		{".dynstr", elf.SHT_STRTAB, 0, 0, 0, names.Bytes()},
		{".dynamic", elf.SHT_DYNAMIC, 0, 3, 0, dynamic.Bytes()},
		{".shstrtab", elf.SHT_STRTAB, 0, 0, 0, []byte("\x00.rodata\x00.dynsym\x00.dynstr\x00.dynamic\x00.shstrtab\x00")},
	}
	const header = 64
	var body, table bytes.Buffer
	for _, s := range sections {
		at := bytes.Index(sections[5].data, []byte(s.name+"\x00"))
		offset := header + body.Len()
		body.Write(s.data)
		binary.Write(&table, order, elf.Section64{Name: uint32(at), Type: uint32(s.kind), Addr: s.addr, Off: uint64(offset), Size: uint64(len(s.data)), Link: uint32(s.link)})
	}
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	var all bytes.Buffer
	binary.Write(&all, order, elf.Header64{Ident: ident, Type: uint16(kind), Machine: uint16(machine), Version: 1,
		Shoff: uint64(header + body.Len()), Ehsize: 64, Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: 5})
	all.Write(body.Bytes())
	all.Write(table.Bytes())
	return all.Bytes()
}

func (o object) write(t *testing.T, path string) string {
	t.Helper()
	return write(t, path, o.bytes(), 0o644)
}

func write(t *testing.T, path string, b []byte, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// The symbols of each family's libraries.
var (
	likeMPICH = object{soname: "libmpi.so.12", defined: []string{"MPI_Init", "MPIR_Dup_fn", "MPI_Abi_get_version"},
		texts: map[string]string{"MPII_Version_string": "4.3.1"}}
	likeOpenMPI = object{soname: "libmpi.so.40", defined: []string{"MPI_Init", "ompi_mpi_comm_self"}, needed: []string{"libopen-pal.so.80"},
		texts: map[string]string{"ompi_version_string": "Open MPI v5.0.7, package: Open MPI someone@host"}}
	likeStandard = object{soname: "libmpi_abi.so.1", defined: []string{"MPI_Init", "MPI_Abi_get_version", "MPIR_Err_return_comm"},
		texts: map[string]string{"MPII_Version_string": "5.0.1"}}
	likeMPICH5 = object{soname: "libmpi.so.12", defined: []string{"MPI_Init", "MPIR_Dup_fn", "MPI_Abi_get_version"},
		texts: map[string]string{"some_text": "MPICH Version\x0018:2:6\x00\x00Fri Sep 25 20:45:26 UTC 2026\x005.0.2"}}
	likeOpenMPI6          = object{soname: "libmpi.so.40", defined: []string{"MPI_Init", "MPI_Abi_get_version"}, used: []string{"ompi_mpi_comm_self"}, needed: []string{"libopen_mpi.so.40"}}
	likeStandardOfOpenMPI = object{soname: "libmpi_abi.so.1", defined: []string{"MPI_Init", "MPI_Abi_get_version"}, needed: []string{"libc.so.6", "libopen-pal.so.0"}}
)

func TestExamineRecognizesFamilies(t *testing.T) {
	dir := t.TempDir()
	object{soname: "libopen_mpi.so.40", texts: map[string]string{"ompi_version_string": "Open MPI v6.0.0rc2, package: Debian"}}.write(t, filepath.Join(dir, "openmpi6/libopen_mpi.so.40"))
	for _, c := range []struct {
		name string
		o    object
		want Library
	}{
		{"mpich", likeMPICH, Library{Family: MPICH, Runtime: MPICH, Vendor: "MPICH", Version: "4.3.1"}},
		{"openmpi", likeOpenMPI, Library{Family: OpenMPI, Runtime: OpenMPI, Vendor: "Open MPI", Version: "5.0.7"}},
		{"mpich5", likeMPICH5, Library{Family: MPICH, Runtime: MPICH, Vendor: "MPICH", Version: "5.0.2"}},
		{"openmpi6", likeOpenMPI6, Library{Family: OpenMPI, Runtime: OpenMPI, Vendor: "Open MPI", Version: "6.0.0rc2"}},
		{"standard", likeStandard, Library{Family: Standard, Runtime: MPICH, Vendor: "MPICH", Version: "5.0.1"}},
		{"standard-openmpi", likeStandardOfOpenMPI, Library{Family: Standard, Runtime: OpenMPI, Vendor: "Open MPI"}},
		{"standard-nobody", object{soname: "libmpi_abi.so.1", defined: []string{"MPI_Init", "MPI_Abi_get_version"}}, Library{Family: Standard}},
		{"intel", object{soname: "libmpi.so.12", defined: []string{"MPI_Init", "MPIR_Err", "I_MPI_Version"}}, Library{Family: MPICH, Runtime: MPICH, Vendor: "Intel MPI"}},
		{"stripped-mpich", object{soname: "libmpich.so.12", defined: []string{"MPI_Init"}}, Library{Family: MPICH, Runtime: MPICH, Vendor: "MPICH"}},
		{"cc", object{soname: "libmpi_gnu_123.so.12", defined: []string{"MPI_Init"}}, Library{Family: MPICH, Runtime: MPICH, Vendor: "Cray MPICH"}},
		{"ibm", object{soname: "libmpi_ibm.so.3", defined: []string{"MPI_Init", "ompi_mpi_comm_self"}}, Library{Family: OpenMPI, Runtime: OpenMPI, Vendor: "IBM Spectrum MPI"}},
		{"no-version-text", object{soname: "libmpi.so.40", defined: []string{"MPI_Init", "ompi_mpi_comm_self"}, texts: map[string]string{"ompi_version_string": "no number"}},
			Library{Family: OpenMPI, Runtime: OpenMPI, Vendor: "Open MPI"}},
	} {
		file := c.o.write(t, filepath.Join(dir, c.name, "libmpi.so"))
		got, err := Examine(file)
		c.want.Path, c.want.Name, c.want.Soname = file, "libmpi.so", c.o.soname
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v\nwant %+v", c.name, got, err, c.want)
		}
	}
}

func TestExamineReportsProblems(t *testing.T) {
	dir := t.TempDir()
	other := elf.EM_AARCH64
	if runtime.GOARCH == "arm64" {
		other = elf.EM_X86_64
	}
	foreign := likeMPICH
	foreign.machine = other
	var small bytes.Buffer // a header alone
	binary.Write(&small, binary.LittleEndian, elf.Header32{Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type: uint16(elf.ET_DYN), Machine: uint16(own().Machine), Version: 1, Ehsize: 52})
	program := likeMPICH
	program.kind = elf.ET_EXEC
	whole := likeMPICH.bytes()
	swapped := slices.Clone(whole)
	swapped[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	for _, c := range []struct {
		name string
		data []byte
		says string
	}{
		{"foreign", foreign.bytes(), "built for another machine"},
		{"small", small.Bytes(), "built for another machine"},
		{"program", program.bytes(), "not a shared library"},
		{"empty", nil, "not a library"},
		{"script", []byte("/* GNU ld script */\nINPUT(libmpi.so.40)\n"), "not a library"},
		{"binary", []byte("\x00\x01\x02"), "not a library"},
		{"header only", whole[:64], "not a library"},
		{"half", whole[:len(whole)/2], "not a library"},
		{"magic", whole[:4], "not a library"},
		{"swapped", swapped, "not a library"},
		{"user", object{soname: "libmpi_cxx.so.40", defined: []string{"MPIR_x"}, used: []string{"MPI_Init"}}.bytes(), "has no MPI_Init"},
		{"trampoline", object{soname: "libmpitrampoline.so.5", defined: []string{"MPI_Init", "MPI_Send"}}.bytes(), "whose ABI is not"},
	} {
		file := write(t, filepath.Join(dir, c.name), c.data, 0o644)
		got, err := Examine(file)
		if err != nil || !bytes.Contains([]byte(got.Problem), []byte(c.says)) {
			t.Errorf("%s: got %q, %v, want a problem with %q", c.name, got.Problem, err, c.says)
		}
	}
	if l, err := Examine(dir + "/"); err != nil || l.Problem != "not a file" {
		t.Errorf("a folder: %+v, %v", l, err)
	}
	for _, name := range []string{"", filepath.Join(dir, "none"), "libno-such-mpi.so.1"} {
		if l, err := Examine(name); err == nil {
			t.Errorf("%q: got %+v, want an error", name, l)
		}
	}
}

// FuzzExamine checks that every ELF file gives a library or a problem.
func FuzzExamine(f *testing.F) {
	f.Add(likeMPICH.bytes(), 20, byte(1))
	f.Add(likeOpenMPI.bytes(), 300, byte(255))
	f.Fuzz(func(t *testing.T, data []byte, at int, value byte) {
		if len(data) > 0 {
			data = slices.Clone(data)
			data[uint(at)%uint(len(data))] = value
		}
		file, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			return
		}
		l := Library{Path: "libmpi.so"}
		if l.read(file); l.Problem == "" && l.Family == Unknown {
			t.Errorf("got %+v", l)
		}
	})
}
