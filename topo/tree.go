package topo

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// tree reads files of /proc and /sys. Names may begin with a slash. A nil file system has no files.
type tree struct{ files fs.FS }

// maxFile bounds how much of a file is read. The largest are lists of mounts and of nodes.
const maxFile = 8 << 20

// text returns a file's content without surrounding white space, or "" if it cannot be read.
func (t tree) text(name string) string { return t.head(name, maxFile) }

// head is text for the beginning of a file.
func (t tree) head(name string, most int64) string {
	if t.files == nil {
		return ""
	}
	f, err := t.files.Open(local(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// local returns a name relative to the root, as package fs requires.
func local(name string) string {
	if name = strings.TrimPrefix(path.Clean("/"+name), "/"); name == "" {
		return "."
	}
	return name
}

// number returns the number in a file.
func (t tree) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(t.text(name), 10, 64)
	return n, err == nil
}

// cpus returns the set of processors in a file, or nil.
func (t tree) cpus(name string) CPUSet {
	set, err := ParseCPUSet(t.text(name))
	if err != nil {
		return nil
	}
	return set
}

// numbered returns the numbers of the entries named prefix and a number, ascending.
func (t tree) numbered(folder, prefix string) []int {
	if t.files == nil {
		return nil
	}
	entries, _ := fs.ReadDir(t.files, local(folder)) // a missing folder has no entries
	var all []int
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), prefix); ok {
			if n, ok := decimal(rest); ok {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return all
}

// field returns the text after a key and a colon in one of the lines of a text, as in
// /proc/self/status.
func field(text, key string) (string, bool) {
	for line := range strings.Lines(text) {
		if before, after, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(before) == key {
			return strings.TrimSpace(after), true
		}
	}
	return "", false
}
