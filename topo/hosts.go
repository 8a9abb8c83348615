package topo

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxHosts is how many nodes a list may name, the most that Slurm takes in a range.
const MaxHosts = 1 << 16

// maxHostName is how long a node's name may be.
const maxHostName = 255

// ErrHosts is in every error of a list that cannot be expanded.
var ErrHosts = errors.New("topo: not a list of nodes")

// ExpandHosts returns the names of a list of nodes as Slurm writes them, and Flux:
//
//	n[01-03,07],gpu-[1-2]x[3-4],login
//
// Names are separated by commas or white space. Numbers in brackets are written
// at least as wide as the first of their range: [08-10] is 08, 09, 10. Names are in
// the order in which Slurm numbers the nodes. Brackets inside brackets are an error,
// as they are to Slurm; text after the last ones is none, as it is to Flux. More
// than [MaxHosts] names are an error, found before any of them is made.
func ExpandHosts(list string) ([]string, error) {
	bad := func(format string, args ...any) ([]string, error) {
		return nil, fmt.Errorf("%w: %s: %s", ErrHosts, quote(list), fmt.Sprintf(format, args...))
	}
	var hosts []string
	for rest := list; rest != ""; {
		var word string
		var err error
		if word, rest, err = nextWord(rest); err != nil {
			return bad("%v", err)
		}
		if word == "" {
			continue
		}
		p, err := parsePattern(word)
		if err != nil {
			return bad("%v", err)
		}
		if p.count > MaxHosts-len(hosts) {
			return bad("more than %d names", MaxHosts)
		}
		if p.longest > maxHostName {
			return bad("a name longer than %d bytes", maxHostName)
		}
		hosts = p.expand(hosts)
	}
	return hosts, nil
}

// nextWord cuts off what is before the first separator outside brackets.
func nextWord(s string) (word, rest string, err error) {
	inside := false
	for i, c := range []byte(s) {
		switch c {
		case '[':
			if inside {
				return "", "", errors.New("a bracket inside brackets")
			}
			inside = true
		case ']':
			if !inside {
				return "", "", errors.New("a bracket is closed that is not open")
			}
			inside = false
		case ',', ' ', '\t', '\n', '\r':
			if !inside {
				return s[:i], s[i+1:], nil
			}
		}
	}
	if inside {
		return "", "", errors.New("a bracket is not closed")
	}
	return s, "", nil
}

// pattern is one word of a list: texts with numbers between them.
type pattern struct {
	texts          []string // one more than numbers
	numbers        [][]numberRange
	count, longest int // names, bytes of the longest
}

// numberRange is what is between two commas in brackets.
type numberRange struct {
	first, last uint64
	width       int // at least
}

// parsePattern reads a word whose brackets are in order.
func parsePattern(word string) (*pattern, error) {
	p := &pattern{count: 1}
	for {
		text, rest, found := strings.Cut(word, "[")
		p.texts = append(p.texts, text)
		p.longest += len(text)
		if !found {
			return p, nil
		}
		inside, after, _ := strings.Cut(rest, "]")
		word = after
		var all []numberRange
		names, longest := 0, 0
		for part := range strings.SplitSeq(inside, ",") {
			r, err := parseNumberRange(part)
			if err != nil {
				return nil, err
			}
			// Both are checked against the limit before they are added, and below before
			// they are multiplied, so that nothing overflows.
			if r.last-r.first >= MaxHosts || names > MaxHosts {
				return nil, fmt.Errorf("more than %d names", MaxHosts)
			}
			names += int(r.last - r.first + 1)
			longest = max(longest, r.width, len(strconv.FormatUint(r.last, 10)))
			all = append(all, r)
		}
		if names > MaxHosts/p.count {
			return nil, fmt.Errorf("more than %d names", MaxHosts)
		}
		p.numbers = append(p.numbers, all)
		p.count *= names
		p.longest += longest
		if p.longest > maxHostName {
			return nil, fmt.Errorf("a name longer than %d bytes", maxHostName)
		}
	}
}

func parseNumberRange(s string) (numberRange, error) {
	from, to, ranged := strings.Cut(s, "-")
	if !ranged {
		to = from
	}
	first, ok1 := digits(from)
	last, ok2 := digits(to)
	if !ok1 || !ok2 || first > last {
		return numberRange{}, fmt.Errorf("%s is neither a number nor a range of numbers", quote(s))
	}
	return numberRange{first, last, len(from)}, nil
}

// digits reads a number of up to 18 digits and any zeros before them.
func digits(s string) (uint64, bool) {
	if s == "" || len(s) > maxHostName || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	s = strings.TrimLeft(s, "0")
	if len(s) > 18 {
		return 0, false
	}
	n, _ := strconv.ParseUint("0"+s, 10, 64)
	return n, true
}

// expand appends the names that a pattern stands for. Slurm's order: the number in
// the last brackets changes from one name to the next, then the first one and so
// on, slowest the last but one.
func (p *pattern) expand(hosts []string) []string {
	last := len(p.numbers) - 1
	chosen := make([]string, len(p.numbers))
	var from func(at int)
	from = func(at int) {
		if at == len(p.numbers) {
			hosts = append(hosts, p.name(chosen))
			return
		}
		i := last
		if at < last {
			i = last - 1 - at
		}
		for _, r := range p.numbers[i] {
			for n := r.first; n <= r.last; n++ {
				chosen[i] = padded(n, r.width)
				from(at + 1)
			}
		}
	}
	from(0)
	return hosts
}

// name puts numbers between the texts.
func (p *pattern) name(numbers []string) string {
	var b strings.Builder
	for i, text := range p.texts {
		b.WriteString(text)
		if i < len(numbers) {
			b.WriteString(numbers[i])
		}
	}
	return b.String()
}

func padded(n uint64, width int) string { return fmt.Sprintf("%0*d", width, n) }

// CompressHosts writes names as a list that [ExpandHosts] expands to the same
// names in the same order, shorter where neighbours differ by a number at their
// end: n[01-03,07],login. Names with brackets, commas or white space in them
// stay as they are.
func CompressHosts(hosts []string) string {
	var b strings.Builder
	for i := 0; i < len(hosts); {
		prefix, number := splitNumber(hosts[i])
		j := i + 1
		for number != "" && j < len(hosts) {
			p, n := splitNumber(hosts[j])
			if p != prefix || n == "" {
				break
			}
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		if j == i+1 {
			b.WriteString(hosts[i])
		} else {
			b.WriteString(prefix + "[" + compressNumbers(hosts[i:j], len(prefix)) + "]")
		}
		i = j
	}
	return b.String()
}

// splitNumber cuts a name before the digits at its end.
func splitNumber(name string) (prefix, number string) {
	if strings.ContainsAny(name, "[], \t\r\n") {
		return name, ""
	}
	prefix = strings.TrimRight(name, "0123456789")
	if _, ok := digits(name[len(prefix):]); !ok {
		return name, ""
	}
	return prefix, name[len(prefix):]
}

// compressNumbers writes the numbers at the end of names as "01-03,07".
func compressNumbers(names []string, from int) string {
	var b strings.Builder
	for i := 0; i < len(names); {
		first := names[i][from:]
		n, _ := digits(first)
		j := i + 1
		for j < len(names) && names[j][from:] == padded(n+uint64(j-i), len(first)) {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(first)
		if j > i+1 {
			b.WriteString("-" + names[j-1][from:])
		}
		i = j
	}
	return b.String()
}
