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
// bracket. More than [MaxHosts] names are an error.
func ExpandHosts(list string) ([]string, error) {
	var hosts []string
	for rest := list; rest != ""; {
		word, after, err := nextWord(rest)
		if rest = after; err == nil && word != "" {
			hosts, err = expand(hosts, word)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrHosts, quote(list), err)
		}
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

// errManyHosts is the error of lists with more names.
var errManyHosts = fmt.Errorf("more than %d names", MaxHosts)

// expand appends the names of a word with balanced brackets, in Slurm's order: the number in the last brackets
// changes fastest, then that in the first, and so on up to the last but one.
func expand(hosts []string, word string) ([]string, error) {
	var texts []string // one more than numbers
	var numbers [][]string
	count := 1
	for {
		text, rest, found := strings.Cut(word, "[")
		texts = append(texts, text)
		if !found {
			break
		}
		var inside string
		inside, word, _ = strings.Cut(rest, "]")
		var all []string
		for part := range strings.SplitSeq(inside, ",") {
			from, to, ranged := strings.Cut(part, "-")
			if !ranged {
				to = from
			}
			first, ok1 := digits(from)
			last, ok2 := digits(to)
			if !ok1 || !ok2 || first > last {
				return nil, fmt.Errorf("%s is neither a number nor a range of numbers", quote(part))
			}
			if last-first >= MaxHosts || len(all) > MaxHosts {
				return nil, errManyHosts
			}
			for n := first; n <= last; n++ {
				all = append(all, fmt.Sprintf("%0*d", len(from), n))
			}
		}
		numbers = append(numbers, all)
		if count > MaxHosts/len(all) {
			return nil, errManyHosts
		}
		count *= len(all)
	}
	if count > MaxHosts-len(hosts) {
		return nil, errManyHosts
	}
	chosen := make([]string, len(numbers)+1) // none follows the last text
	for n := range count {
		for k := range numbers {
			i := (k + len(numbers) - 1) % len(numbers)
			chosen[i] = numbers[i][n%len(numbers[i])]
			n /= len(numbers[i])
		}
		name := ""
		for i, text := range texts {
			name += text + chosen[i]
		}
		if len(name) > maxHostName {
			return nil, fmt.Errorf("a name longer than %d bytes", maxHostName)
		}
		hosts = append(hosts, name)
	}
	return hosts, nil
}

// digits parses a number of digits only, as long as a name can be. It is below 2^63.
func digits(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return n, err == nil && len(s) <= maxHostName
}
