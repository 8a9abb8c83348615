package topo

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// tree reads the files of /proc and /sys. Names may begin with a slash or not. In
// the nil file system there are none.
type tree struct{ files fs.FS }

// maxFile bounds what is read of a file. The largest that matter are lists of
// mounts and of nodes.
const maxFile = 8 << 20

// text returns a file's content without white space around it, "" for what cannot
// be read.
func (t tree) text(name string) string { return t.head(name, maxFile) }

// head returns the beginning of a file's content like text.
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

// local returns a name as file systems want them, relative to their root.
func local(name string) string {
	if name = strings.TrimPrefix(path.Clean("/"+name), "/"); name == "" {
		return "."
	}
	return name
}

// number returns a file's number.
func (t tree) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(t.text(name), 10, 64)
	return n, err == nil
}

// cpus returns a file's set of processors, nil for what is none.
func (t tree) cpus(name string) CPUSet {
	set, err := ParseCPUSet(t.text(name))
	if err != nil {
		return nil
	}
	return set
}

// names returns the names of a folder's entries, sorted.
func (t tree) names(folder string) []string {
	if t.files == nil {
		return nil
	}
	entries, _ := fs.ReadDir(t.files, local(folder)) // a folder that is not there has none
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// numbered returns the numbers of a folder's entries that are called prefix and a
// number, ascending.
func (t tree) numbered(folder, prefix string) []int {
	var all []int
	for _, name := range t.names(folder) {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			if n, ok := decimal(rest); ok {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return all
}

// field returns what follows a key and a colon in one of a text's lines, as in
// /proc/self/status.
func field(text, key string) (string, bool) {
	for line := range strings.Lines(text) {
		if before, after, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(before) == key {
			return strings.TrimSpace(after), true
		}
	}
	return "", false
}
