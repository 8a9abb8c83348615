package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// table is what mpi.table says.
type table struct {
	chapters                               []chapter
	constants, classes, handles, addresses []constant
}

// chapter is a chapter of the standard with its functions.
type chapter struct {
	title     string
	functions []*function
}

// function is a row of the table.
type function struct {
	name   string // MPI_Send
	since  string // 1.0; X for an extension
	use    string // need, use or -
	result string // of a function that is used; else empty
	params string // without the parentheses
	other  string // the name to look for if the library has not got this one
	large  string // +c: the form with large counts is used; (c): there is one; empty: there is none
}

// The places of the ABIs in the arrays below.
const (
	mpich = iota
	ompi
	standard
	numABIs
)

// abiNames are the suffixes of the headers.
var abiNames = [numABIs]string{"mpich", "ompi", "std"}

// constant is a name that has one value in each ABI: an integer, an error class, a predefined handle, or an address.
type constant struct {
	name     string
	typ      string          // of a handle (Op) or an address (void *)
	value    [numABIs]string // empty: the ABI has none
	from     [numABIs]string // the library's major version that introduced it; empty: all
	sentinel string          // of an error class: the name of backend's error; else empty
}

// parse reads mpi.table.
func parse(path string) (*table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := new(table)
	section := ""
	in := bufio.NewScanner(f)
	for number := 1; in.Scan(); number++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "= "); ok {
			name, title, _ := strings.Cut(rest, " ")
			section = name
			if !strings.Contains("KEHA", section) {
				t.chapters = append(t.chapters, chapter{title: title})
			}
			continue
		}
		if err := t.row(section, line); err != nil {
			return nil, fmt.Errorf("%s:%d: %v", path, number, err)
		}
	}
	return t, in.Err()
}

func (t *table) row(section, line string) error {
	list := map[string]*[]constant{"K": &t.constants, "E": &t.classes, "H": &t.handles, "A": &t.addresses}[section]
	switch {
	case section == "":
		return fmt.Errorf("%q before the first chapter", line)
	case list != nil:
		c, err := constantRow(section, strings.Fields(line))
		*list = append(*list, c)
		return err
	}
	fn, err := t.functionRow(line)
	if err != nil {
		return err
	}
	c := &t.chapters[len(t.chapters)-1]
	c.functions = append(c.functions, fn)
	return nil
}

// constantRow reads a name, the type of a handle or an address, the values, and the error of an error class.
func constantRow(section string, f []string) (c constant, err error) {
	last := len(f)
	if section == "E" {
		last--
	}
	first := last - numABIs
	if typed := section == "H" || section == "A"; first < 1 || typed != (first > 1) {
		return c, fmt.Errorf("a row of section %s does not have %d fields", section, len(f))
	}
	c.name, c.typ = f[0], strings.Join(f[1:first], " ")
	for i, v := range f[first:last] {
		if v != "-" {
			c.value[i], c.from[i], _ = strings.Cut(v, "@")
		}
	}
	if section == "E" && f[last] != "-" {
		c.sentinel = "Err" + f[last]
	}
	return c, nil
}

// functionRow reads the row of a function; the grammar is at the beginning of the table.
func (t *table) functionRow(line string) (*function, error) {
	left, how, ok := strings.Cut(line, " | ")
	fields := strings.SplitN(left, " ", 3)
	if !ok || how == "" || len(fields) != 3 {
		return nil, fmt.Errorf("%q is not a row of a function", line)
	}
	fn := &function{since: fields[0], use: fields[1]}
	rest := fields[2]
	for _, mark := range []string{"+c", "(c)"} {
		if r, ok := strings.CutSuffix(rest, " "+mark); ok {
			rest, fn.large = r, mark
		}
	}
	rest, fn.other, _ = strings.Cut(rest, " or ")
	switch name, model, like := strings.Cut(rest, " like "); {
	case fn.use == "-":
		fn.name = rest
	case fn.use != "need" && fn.use != "use":
		return nil, fmt.Errorf("%q is not need, use or -", fn.use)
	case like:
		m := t.find(model)
		if m == nil || m.result == "" {
			return nil, fmt.Errorf("%s is like %s, which has no prototype above it", name, model)
		}
		fn.name, fn.result, fn.params = name, m.result, m.params
		if strings.HasSuffix(name, "_init") {
			fn.params += ", MPI_Info info"
		}
		fn.params += ", MPI_Request *request"
	default:
		head, params, ok := strings.Cut(strings.TrimSuffix(rest, ")"), "(")
		i := strings.LastIndexByte(head, ' ')
		if !ok || i < 0 {
			return nil, fmt.Errorf("%q is not a prototype", rest)
		}
		fn.result, fn.name, fn.params = head[:i], head[i+1:], params
	}
	if !strings.HasPrefix(fn.name, "MPI_") && !strings.HasPrefix(fn.name, "MPIX_") || strings.ContainsAny(fn.name, " (") {
		return nil, fmt.Errorf("%q is not the name of a function", fn.name)
	}
	if t.find(fn.name) != nil {
		return nil, fmt.Errorf("%s is listed twice", fn.name)
	}
	return fn, nil
}

func (t *table) find(name string) *function {
	for _, c := range t.chapters {
		for _, f := range c.functions {
			if f.name == name {
				return f
			}
		}
	}
	return nil
}

// used returns the functions that the shim calls: those of the table, each followed by its form with
// large counts if that is used.
func (t *table) used() (list []*function) {
	for _, c := range t.chapters {
		for _, f := range c.functions {
			if f.use == "-" {
				continue
			}
			list = append(list, f)
			if f.large == "+c" {
				list = append(list, f.largeForm())
			}
		}
	}
	return list
}

// largeForm returns NAME_c, which has MPI_Count where NAME has an int that counts, and MPI_Aint where
// it has an array of displacements. Which ints count is seen by their names.
func (f *function) largeForm() *function {
	params := strings.Split(f.params, ", ")
	for i, p := range params {
		switch {
		case strings.HasPrefix(p, "MPI_User_function "):
			params[i] = strings.Replace(p, "MPI_User_function", "MPI_User_function_c", 1)
		case strings.Contains(p, "displs["):
			params[i] = strings.Replace(p, "int ", "MPI_Aint ", 1)
		case strings.Contains(p, "count"):
			params[i] = strings.Replace(p, "int ", "MPI_Count ", 1)
		}
	}
	large := *f
	large.name, large.since, large.use, large.large = f.name+"_c", "4.0", "use", ""
	large.params = strings.Join(params, ", ")
	large.other = "" // no library has it under another name
	return &large
}

// short returns the name without its prefix.
func (f *function) short() string {
	_, short, _ := strings.Cut(f.name, "_")
	return short
}
