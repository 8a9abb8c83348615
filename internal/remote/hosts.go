package remote

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/topo"
)

// Host is a machine with ranks on it.
type Host struct {
	Name  string // for ssh: a name, an address, USER@NAME
	Slots int    // the maximum number of ranks; 0 if not given
}

// maxSlots is the most ranks of one host.
const maxSlots = 4096

// ParseHosts reads a list of hosts, separated by commas: a,b:4,node[3-5]:8. A name may have the form of Slurm
// ([topo.ExpandHosts]), and may be followed by a colon and its slots. An IPv6 address with slots is written in
// brackets: [fd00::1]:4.
func ParseHosts(list string) ([]Host, error) {
	var hosts []Host
	depth, from := 0, 0
	for i := 0; i <= len(list); i++ {
		switch {
		case i == len(list), list[i] == ',' && depth == 0:
			if word := strings.TrimSpace(list[from:i]); word != "" {
				these, err := parseHost(word)
				if err != nil {
					return nil, err
				}
				hosts = append(hosts, these...)
			}
			from = i + 1
		case list[i] == '[':
			depth++
		case list[i] == ']':
			depth--
		}
		if len(hosts) > topo.MaxHosts {
			return nil, fmt.Errorf("more than %d hosts", topo.MaxHosts)
		}
	}
	return together(hosts)
}

// ParseHostfile reads a file of hosts, one a line: NAME, NAME:4, or NAME slots=4 as mpirun has it, and a list as
// for ParseHosts. # begins a comment. A name that occurs several times has that many slots.
func ParseHostfile(text string) ([]Host, error) {
	var hosts []Host
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		these, err := ParseHosts(words[0])
		for _, w := range words[1:] {
			if err != nil {
				break
			}
			key, value, ok := strings.Cut(w, "=")
			switch {
			case key == "slots" && ok:
				var slots int
				slots, err = parseSlots(value)
				for i := range these {
					these[i].Slots = slots
				}
			case key == "max_slots" || key == "max-slots": // of mpirun: more than slots, if asked for
			default:
				err = fmt.Errorf("%q: want the form slots=4", w)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		hosts = append(hosts, these...)
	}
	return together(hosts)
}

// parseHost reads one word of a list.
func parseHost(word string) ([]Host, error) {
	name, slots := word, 0
	after := name[strings.LastIndexByte(name, ']')+1:]
	if strings.Count(after, ":") == 1 {
		var text string
		i := strings.LastIndexByte(name, ':')
		name, text = name[:i], name[i+1:]
		var err error
		if slots, err = parseSlots(text); err != nil {
			return nil, fmt.Errorf("host %q: %w", word, err)
		}
	}
	if inside, ok := strings.CutPrefix(name, "["); ok {
		address, closed := strings.CutSuffix(inside, "]")
		if a, err := netip.ParseAddr(address); err == nil && closed {
			return []Host{{a.String(), slots}}, checkName(a.String()) // a zone can be anything
		}
	}
	names, err := topo.ExpandHosts(name)
	if err != nil {
		return nil, err
	}
	var hosts []Host
	for _, n := range names {
		if err := checkName(n); err != nil {
			return nil, err
		}
		hosts = append(hosts, Host{n, slots})
	}
	return hosts, nil
}

func parseSlots(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxSlots {
		return 0, fmt.Errorf("%q slots: want a whole number from 1 to %d", text, maxSlots)
	}
	return n, nil
}

// checkName rejects names that ssh would take for an option, and names that are not valid for a host.
func checkName(name string) error {
	switch {
	case strings.HasPrefix(name, "-"):
		return fmt.Errorf("host %q: a name cannot begin with -", name)
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("/\\'\"`$;&|<>()*?!{},", r) }):
		return fmt.Errorf("host %q: invalid character in the name", name)
	}
	return nil
}

// together merges entries with the same name: entries without slots count as one slot each.
func together(hosts []Host) ([]Host, error) {
	if len(hosts) == 0 {
		return nil, errors.New("the list of hosts is empty")
	}
	at := map[string]int{}
	var all []Host
	for _, h := range hosts {
		i, seen := at[h.Name]
		if !seen {
			at[h.Name] = len(all)
			all = append(all, h)
			continue
		}
		all[i].Slots = max(1, all[i].Slots) + max(1, h.Slots)
	}
	return all, nil
}

// share returns how many of n ranks each host gets: as evenly as slots allow, and more on the first hosts if it
// is not even. 0 slots mean no limit.
func share(hosts []Host, n int) ([]int, error) {
	counts := make([]int, len(hosts))
	for left := n; left > 0; {
		open := 0
		for i, h := range hosts {
			if h.Slots == 0 || counts[i] < h.Slots {
				open++
			}
		}
		if open == 0 {
			total := 0
			for _, h := range hosts {
				total += h.Slots
			}
			return nil, fmt.Errorf("%d ranks, but the hosts have only %d slots: raise a limit (%s:%d), or start fewer ranks", n, total, hosts[0].Name, hosts[0].Slots+n-total)
		}
		each := max(1, left/open)
		for i, h := range hosts {
			room := left
			if h.Slots > 0 {
				room = min(room, h.Slots-counts[i])
			}
			take := min(each, room)
			counts[i] += take
			left -= take
		}
	}
	return counts, nil
}
