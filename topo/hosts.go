package topo

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxHosts is the most nodes in a list, which is also Slurm's limit for a range.
const MaxHosts = 1 << 16

// maxHostName is the longest name of a node.
const maxHostName = 255

// ErrHosts is wrapped by errors of [ExpandHosts].
var ErrHosts = errors.New("topo: not a list of nodes")

// ExpandHosts returns the names in a list of nodes as Slurm and Flux write it:
//
//	n[01-03,07],gpu-[1-2]x[3-4],login
//
// Commas or white space separate names. Numbers in brackets are written at least as wide as the
// first of their range: [08-10] is 08, 09, 10. The names are in the order in which Slurm numbers
// the nodes. As in Slurm, brackets must not be nested; as in Flux, text may follow the last
// bracket. More than [MaxHosts] names are an error, reported before any name is made.
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

// nextWord splits s at the first separator outside brackets.
func nextWord(s string) (word, rest string, err error) {
	inside := false
	for i, c := range []byte(s) {
		switch c {
		case '[':
			if inside {
				return "", "", errors.New("nested brackets")
			}
			inside = true
		case ']':
			if !inside {
				return "", "", errors.New("']' without '['")
			}
			inside = false
		case ',', ' ', '\t', '\n', '\r':
			if !inside {
				return s[:i], s[i+1:], nil
			}
		}
	}
	if inside {
		return "", "", errors.New("'[' without ']'")
	}
	return s, "", nil
}

// pattern is one word of a list: texts with ranges of numbers between them.
type pattern struct {
	texts          []string // one more than numbers
	numbers        [][]numberRange
	count, longest int // number of names, and bytes of the longest
}

// numberRange is an element of a list in brackets.
type numberRange struct {
	first, last uint64
	width       int // minimum width
}

// parsePattern parses a word with balanced brackets.
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
			// Both are checked before they are added here and multiplied below, so that nothing
			// overflows.
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

// digits parses a number of up to 18 digits after any leading zeros.
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

// expand appends the names of a pattern in Slurm's order: the number in the last brackets changes
// fastest, then that in the first, and so on up to the last but one.
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

// name inserts numbers between the texts.
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

// CompressHosts formats names as a list that [ExpandHosts] expands to the same names in the same
// order. It joins neighbors that differ only in a number at the end: n[01-03,07],login. Names with
// brackets, commas or white space are copied unchanged.
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

// splitNumber splits a name before the digits at its end.
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

// compressNumbers formats the numbers at the end of names as "01-03,07".
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
