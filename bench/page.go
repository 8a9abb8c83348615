package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort/internal/chart"
)

// group is programs that are compared: each of cohort's with the fastest of those in C.
type group struct {
	c, ours []string
	beside  string
}

var groups = []group{
	{[]string{"mpich", "openmpi"}, []string{"shm", "local", "tcp"}, "the faster library"},
	{[]string{"openmpi-tcp"}, []string{"sockets"}, "Open MPI over TCP"},
	{[]string{"mpich-multiple"}, []string{"over-mpich"}, "MPICH"},
	{[]string{"openmpi-multiple"}, []string{"over-openmpi"}, "Open MPI"},
}

// programs are how the page names and draws them.
var programs = map[string]struct {
	title string
	color uint32
}{
	"shm": {"shm", 0x0072b2}, "local": {"local", 0x56b4e9}, "tcp": {"tcp", 0x009e73},
	"sockets": {"tcp, sockets only", 0xe69f00}, "openmpi-tcp": {"C: Open MPI over TCP", 0xe69f00},
	"mpich": {"C: MPICH", 0xcc79a7}, "openmpi": {"C: Open MPI", 0xd55e00},
	"over-mpich": {"cohort over MPICH", 0xcc79a7}, "mpich-multiple": {"C: MPICH, multiple", 0xcc79a7},
	"over-openmpi": {"cohort over Open MPI", 0xd55e00}, "openmpi-multiple": {"C: Open MPI, multiple", 0xd55e00},
}

var libraries = map[string]string{"mpich": "MPICH", "openmpi": "Open MPI"}

// measured says what a time is of.
type measured struct {
	op           string
	ranks, bytes int
}

func (m measured) String() string {
	text := m.op
	switch {
	case m.bytes == 0:
	case m.bytes%1e5 == 0:
		text += fmt.Sprintf(" %g MB", float64(m.bytes)/1e6)
	case m.bytes >= 1<<20:
		text += fmt.Sprintf(" %d MiB", m.bytes>>20)
	case m.bytes >= 1<<10:
		text += fmt.Sprintf(" %d KiB", m.bytes>>10)
	default:
		text += fmt.Sprintf(" %d B", m.bytes)
	}
	if m.ranks != 2 {
		text += fmt.Sprintf(" on %d ranks", m.ranks)
	}
	return text
}

// situation is what was measured while ranks 0 and 1 were on processors that share a cache, or on
// others. Times of the two are never compared.
type situation struct {
	name, file string
	best       map[string]map[measured]float64 // microseconds, by program
	count      int
	lo, hi     float64    // the handover
	whole      *situation // what was measured in any situation
}

// A cache line takes 30 to 60 ns between processors that share a cache, and 150 ns or more between
// others.
const shared = 90

// split returns the situations that have a time of everything that was measured, or else the one with the
// most times, and the number of times that are in none: those of other situations, and those during
// which the situation changed. A record has the handover just before it, and the next one that after it.
func split(all []record) (kept []*situation, dropped int) {
	all = slices.DeleteFunc(slices.Clone(all), func(r record) bool { return r.Error != "" })
	side := func(ns float64, otherwise int) int {
		switch {
		case ns == 0:
			return otherwise
		case ns < shared:
			return 1
		}
		return 2
	}
	after, now := make([]int, len(all)), 0
	for i, r := range slices.Backward(all) {
		after[i] = now
		now = side(r.Handover, now)
	}
	found := []*situation{{name: "All figures"}, {name: "Processors that share a cache", file: "-near"}, {name: "Processors that share no cache", file: "-far"}}
	whole := new(situation)
	for i, r := range all {
		now = side(r.Handover, now)
		whole.add(r)
		if after[i] == 0 || after[i] == now {
			found[now].add(r)
		}
	}
	most := slices.MaxFunc(found, func(a, b *situation) int { return cmp.Compare(a.count, b.count) })
	dropped = len(all)
	for _, s := range found {
		if s.whole = whole; s == most || s.times() == whole.times() {
			kept = append(kept, s)
			dropped -= s.count
		}
	}
	return kept, dropped
}

// times returns the number of different things that have a time.
func (s *situation) times() (n int) {
	for _, m := range s.best {
		n += len(m)
	}
	return n
}

func (s *situation) add(r record) {
	m := measured{r.Op, r.Ranks, r.Bytes}
	if s.best == nil {
		s.best = make(map[string]map[measured]float64)
	}
	if s.best[r.Program] == nil {
		s.best[r.Program] = make(map[measured]float64)
	}
	if t, ok := s.best[r.Program][m]; !ok || r.Usec < t {
		s.best[r.Program][m] = r.Usec
	}
	if r.Handover > 0 {
		if s.lo == 0 || r.Handover < s.lo {
			s.lo = r.Handover
		}
		s.hi = max(s.hi, r.Handover)
	}
	s.count++
}

// ratio returns the time of one of cohort's programs over that of the fastest in C, if all of these
// have a time in this situation.
func (s *situation) ratio(g group, program string, m measured) (float64, bool) {
	fastest := math.Inf(1)
	for _, c := range g.c {
		if t, ok := s.best[c][m]; ok {
			fastest = min(fastest, t)
		} else if _, ok := s.whole.best[c][m]; ok {
			return 0, false
		}
	}
	t, ok := s.best[program][m]
	return t / fastest, ok && !math.IsInf(fastest, 1)
}

// writePage writes a page about a recorded session, and its charts into the folder of that name.
func writePage(file, results string) error {
	h, all, err := load(results)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(r record) bool { return r.Error == "" }) {
		return fmt.Errorf("%s has no results", results)
	}
	charts := strings.TrimSuffix(file, ".md")
	old, err := filepath.Glob(filepath.Join(charts, "*.svg"))
	if err == nil {
		err = os.MkdirAll(charts, 0o777)
	}
	for _, f := range old {
		if err == nil {
			err = os.Remove(f)
		}
	}
	if err != nil {
		return err
	}
	text, err := page(h, all, charts)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o666)
}

// page returns the text of a page and writes its charts into a folder.
func page(h header, all []record, charts string) (string, error) {
	situations, dropped := split(all)
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("<!-- Written by make bench. Do not edit. -->\n# Performance\n")
	p("How fast is cohort on one machine, compared with C programs on the MPI libraries there? `make bench`")
	p("measured these times and wrote this page. [bench.md](bench.md) describes what each time measures.\n")
	if h.Load > 0.5 {
		p("**The machine was not idle: its load was %.1f before the run. Do not rely on these figures.**\n", h.Load)
	}
	p("## In short\n\nA ratio is the time of cohort over that of the C program: below 1, cohort is faster. The table has the")
	p("lowest ratio, and the highest ratios: one of each operation, and four at most.")
	for _, s := range situations {
		if len(situations) > 1 {
			p("\n%s:", s.name)
		}
		p("\n%s", s.summary())
	}
	p("## The machine\n\n| | |\n|---|---|")
	for _, row := range append(h.Machine, [2]string{"MPI libraries", versions(all)}) {
		p("| %s | %s |", row[0], row[1])
	}
	rounds := 0
	for _, r := range all {
		rounds = max(rounds, r.Round)
	}
	p("| rounds | %d |", rounds)
	p("\n## How it was measured\n")
	p("All programs run in turn, round after round, each rank on its own core if there are enough.")
	p("A time is the best of all rounds, in microseconds. In the tables, the ratio follows it in parentheses.\n")
	p("- `shm`, `local` and `tcp` are cohort's backends. They are compared with the faster of the C libraries at")
	p("  thread level `single`.\n- `tcp, sockets only` sends everything over connections, as does Open MPI over TCP.")
	p("- Cohort over an MPI library is compared with C on the same library, both at thread level `multiple`.\n")
	for _, s := range situations {
		if s.hi > 0 {
			p("%s: %d times were measured while a cache line took %.0f to %.0f ns from rank 0 to rank 1.\n", s.name, s.count, s.lo, s.hi)
		}
	}
	if dropped > 0 {
		p("Times left out: %d. The ranks came to processors of the other kind meanwhile, or were there too rarely to", dropped)
		p("measure everything.")
	}
	for _, m := range h.Missing {
		p("\n%s is not installed: its figures are missing.", libraries[m])
	}
	for _, r := range all {
		if r.Error != "" {
			p("\nThere are no figures of %s for %s on %d ranks: `%s`.", programs[r.Program].title, r.Op, r.Ranks, r.Error)
		}
	}
	p("\nTo write this page again, run `make bench` on an idle machine.\n")
	for _, s := range situations {
		if err := s.write(&b, charts); err != nil {
			return "", err
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n", nil
}

// versions returns the names and versions that the C libraries gave.
func versions(all []record) string {
	var names []string
	for _, r := range all {
		if libraries[r.Program] != "" && r.Lib != "" && !slices.Contains(names, r.Lib) {
			names = append(names, r.Lib)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

// summary says of each of cohort's programs where it is faster and slower than C.
func (s *situation) summary() string {
	type result struct {
		measured
		ratio float64
	}
	var b strings.Builder
	for _, g := range groups {
		for _, program := range g.ours {
			var all []result
			for m := range s.best[program] {
				if r, ok := s.ratio(g, program, m); ok {
					all = append(all, result{m, r})
				}
			}
			if len(all) == 0 {
				continue
			}
			slices.SortFunc(all, func(x, y result) int {
				return cmp.Or(cmp.Compare(y.ratio, x.ratio), strings.Compare(x.String(), y.String()))
			})
			faster, lowest, ops, highest := 0, "–", make(map[string]bool), []string(nil)
			for _, r := range all {
				text := fmt.Sprintf("%s (%.2f)", r.measured, r.ratio)
				if r.ratio <= 1 {
					faster, lowest = faster+1, text
				} else if !ops[r.op] && len(ops) < 4 {
					ops[r.op], highest = true, append(highest, text)
				}
			}
			fmt.Fprintf(&b, "| %s | %s | %d of %d | %s | %s |\n", programs[program].title, g.beside, faster, len(all), lowest,
				cmp.Or(strings.Join(highest, ", "), "–"))
		}
	}
	if b.Len() == 0 {
		return "There was no C library to compare with.\n"
	}
	return "| cohort | C | faster cases | lowest ratio | highest ratios |\n|---|---|---|---|---|\n" + b.String()
}

// write writes the tables and charts of a situation.
func (s *situation) write(b *strings.Builder, charts string) error {
	var two, four, pairs, sddp []measured
	for m := range s.whole.best["shm"] {
		switch {
		case slices.Contains(payloads, m):
			sddp = append(sddp, m)
		case m.ranks == 2:
			two = append(two, m)
		case m.op == "bw":
			pairs = append(pairs, m)
		default:
			four = append(four, m)
		}
	}
	for _, rows := range [][]measured{two, four, pairs, sddp} {
		slices.SortFunc(rows, func(x, y measured) int {
			return cmp.Or(cmp.Compare(x.ranks, y.ranks), cmp.Compare(slices.Index(pageOps, x.op), slices.Index(pageOps, y.op)), cmp.Compare(x.bytes, y.bytes))
		})
	}
	fmt.Fprintf(b, "## %s\n", s.name)
	for len(two) > 0 {
		op := two[0].op
		n := 1
		for n < len(two) && two[n].op == op {
			n++
		}
		fmt.Fprintf(b, "\n### %s, 2 ranks\n", op)
		name := op + s.file + ".svg"
		drawn, err := s.chart(filepath.Join(charts, name), two[:n])
		if err != nil {
			return err
		}
		if drawn {
			fmt.Fprintf(b, "\n![time and ratio of %s over the message size](%s/%s)\n", op, filepath.Base(charts), name)
		}
		s.table(b, two[:n], groups[:1])
		s.table(b, two[:n], groups[1:])
		two = two[n:]
	}
	if len(four) > 0 {
		fmt.Fprint(b, "\n### More ranks than cores\n\nDebian's MPICH is left out: its ranks wait for the system's time slices.\n")
		s.table(b, four, groups[:1])
	}
	if len(pairs) > 0 {
		fmt.Fprint(b, "\n### Message rate\n\nEach rank of one half sends to one of the other half. The time is divided by the messages of all:\n",
			"0.1 µs is ten million messages a second.\n")
		s.table(b, pairs, groups[:1])
	}
	if len(sddp) > 0 {
		fmt.Fprint(b, "\n### Payloads of the dispatch program\n\nIn each pass of a large training, all ranks get 206 MB and 3.2 MB of states and cuts,\n",
			"and 32 B of bounds. For allgatherv the size is what one rank sends.\n")
		s.table(b, sddp, groups[:1])
		s.table(b, sddp, groups[1:])
	}
	b.WriteString("\n")
	return nil
}

// table writes a table with a row for each of what was measured, and a column for each program that
// has a time of it.
func (s *situation) table(b *strings.Builder, rows []measured, of []group) {
	head, rule, lines := "|", "|---|", make([]string, len(rows))
	for _, g := range of {
		for _, program := range append(slices.Clone(g.c), g.ours...) {
			if !slices.ContainsFunc(rows, func(m measured) bool { _, ok := s.best[program][m]; return ok }) {
				continue
			}
			head += " | " + programs[program].title
			rule += "---:|"
			for i, m := range rows {
				cell := "–"
				if t, ok := s.best[program][m]; ok {
					cell = microseconds(t)
				}
				if r, ok := s.ratio(g, program, m); ok && slices.Contains(g.ours, program) {
					cell += fmt.Sprintf(" (%.2f)", r)
				}
				lines[i] += " | " + cell
			}
		}
	}
	if len(lines) == 0 || lines[0] == "" {
		return
	}
	fmt.Fprintf(b, "\n%s |\n%s\n", head, rule)
	for i, m := range rows {
		fmt.Fprintf(b, "| %s%s |\n", m, lines[i])
	}
}

// microseconds writes a time with at least three digits.
func microseconds(t float64) string {
	switch {
	case t < 10:
		return fmt.Sprintf("%.3f", t)
	case t < 100:
		return fmt.Sprintf("%.1f", t)
	}
	return fmt.Sprintf("%.0f", t)
}

// chart draws the times of an operation and their ratios, and reports whether there is anything to draw.
func (s *situation) chart(file string, rows []measured) (bool, error) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(m measured) bool { return m.bytes == 0 })
	if len(rows) == 0 {
		return false, nil
	}
	curve := func(program string, dashed bool, value func(measured) (float64, bool)) (c []chart.Curve) {
		style := programs[program]
		var points []chart.Point
		for _, m := range rows {
			if v, ok := value(m); ok {
				points = append(points, chart.Point{X: float64(m.bytes), Y: v})
			}
		}
		if points == nil {
			return nil
		}
		return []chart.Curve{{Name: style.title, Color: fmt.Sprintf("#%06x", style.color), Width: 2, Dot: 3, Dashed: dashed, Points: points}}
	}
	times := chart.Panel{Title: "time of one call", X: chart.Bytes, Y: chart.Axis{Base: 10, Label: func(v float64) string { return chart.SI(v, "s") }}}
	ratios := chart.Panel{Title: "time over that in C (below 1: cohort is faster)", X: chart.Bytes,
		Y: chart.Axis{Base: 2, Label: func(v float64) string { return fmt.Sprintf("%.3g", v) }}}
	for i, g := range groups {
		for k, program := range append(slices.Clone(g.c), g.ours...) {
			if i < 2 { // the charts of cohort over MPI would hide each other
				times.Curves = append(times.Curves, curve(program, k < len(g.c), func(m measured) (float64, bool) {
					t, ok := s.best[program][m]
					return t * 1e-6, ok
				})...)
			}
			if k >= len(g.c) {
				ratios.Curves = append(ratios.Curves, curve(program, false, func(m measured) (float64, bool) { return s.ratio(g, program, m) })...)
			}
		}
	}
	if len(times.Curves) == 0 {
		return false, nil
	}
	panels := []chart.Panel{times}
	if len(ratios.Curves) > 0 {
		ends := []chart.Point{{X: float64(rows[0].bytes), Y: 1}, {X: float64(rows[len(rows)-1].bytes), Y: 1}}
		panels = append(panels, ratios)
		panels[1].Curves = append(panels[1].Curves, chart.Curve{Name: "as fast as C", Color: "black", Width: 2, Dashed: true, Points: ends})
	}
	return true, chart.Write(file, rows[0].op+", 2 ranks", len(panels), panels...)
}
