package main

import (
	"fmt"
	"slices"
	"strings"
)

// coverage returns the part of docs/mpi-coverage.md that is about the functions of MPI.
func (t *table) coverage() string {
	var b strings.Builder
	b.WriteString("| chapter | functions | needed | used | not used |\n|---|---:|---:|---:|---:|\n")
	var all [4]int
	for _, c := range t.chapters {
		n := c.count()
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", c.heading(), n[0], n[1], n[2], n[3])
		for i := range n {
			all[i] += n[i]
		}
	}
	fmt.Fprintf(&b, "| all | %d | %d | %d | %d |\n", all[0], all[1], all[2], all[3])
	for _, c := range t.chapters {
		fmt.Fprintf(&b, "\n### %s\n\n", c.heading())
		names, reasons := c.unused()
		if len(reasons) == 1 && len(names[reasons[0]]) == len(c.functions) {
			fmt.Fprintf(&b, "None: %s.\n", reasons[0])
			continue
		}
		for _, r := range reasons {
			writeItem(&b, r+":", names[r])
		}
	}
	return b.String()
}

// unused returns the functions of the chapter that are not used, by the reason, and the reasons in order.
func (c *chapter) unused() (names map[string][]string, reasons []string) {
	names = make(map[string][]string)
	for _, f := range c.functions {
		if f.use != "-" {
			continue
		}
		if names[f.how] == nil {
			reasons = append(reasons, f.how)
		}
		names[f.how] = append(names[f.how], "`"+f.name+"`")
	}
	slices.SortStableFunc(reasons, func(a, b string) int { return len(names[b]) - len(names[a]) })
	return names, reasons
}

// writeItem writes an item of a list, wrapped at 100 columns.
func writeItem(b *strings.Builder, text string, names []string) {
	line := "-"
	for _, word := range strings.Fields(text + " " + strings.Join(names, ", ")) {
		if len(line)+1+len(word) > 100 {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

func (c *chapter) heading() string {
	if c.number == "X" {
		return c.title
	}
	return c.number + ". " + c.title
}

// count returns how many functions the chapter has, and how many are needed, used, not used.
func (c *chapter) count() (n [4]int) {
	for _, f := range c.functions {
		n[0]++
		switch f.use {
		case "need":
			n[1]++
		case "use":
			n[2]++
		default:
			n[3]++
		}
	}
	return n
}
