package cohort

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Topology says where the ranks of a communicator run.
type Topology struct {
	Backend string // local, shm, tcp or mpi
	Library string // the library beneath, empty for built-in backends
	Hosts   []Host // in the order of their lowest ranks
}

// Host is one node and its ranks.
type Host struct {
	Name  string
	Ranks []int // ascending
}

// Topology returns where c's ranks run. The name of a node other than the
// calling rank's is not known, and is "node" and its number.
//
// Local.
func (c *Comm) Topology() Topology {
	caps := c.Caps()
	t := Topology{Backend: caps.Backend, Library: caps.Library}
	if c == nil || c.core == nil {
		return t
	}
	bc := c.core.bc
	here := bc.NodeOf(c.core.rank)
	at := make(map[int]int) // index in Hosts by node
	for r := range c.core.size {
		node := bc.NodeOf(r)
		i, ok := at[node]
		if !ok {
			i = len(t.Hosts)
			at[node] = i
			t.Hosts = append(t.Hosts, Host{Name: "node" + strconv.Itoa(node)})
			if name, err := os.Hostname(); err == nil && node == here {
				t.Hosts[i].Name = name
			}
		}
		t.Hosts[i].Ranks = append(t.Hosts[i].Ranks, r)
	}
	return t
}

// String returns the topology in one line: "4 ranks on 1 node: host: 0-3".
func (t Topology) String() string {
	n := 0
	var hosts []string
	for _, h := range t.Hosts {
		n += len(h.Ranks)
		hosts = append(hosts, h.Name+": "+ranges(h.Ranks))
	}
	return fmt.Sprintf("%s on %s: %s", plural(n, "rank"), plural(len(t.Hosts), "node"), strings.Join(hosts, "; "))
}

func plural(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return strconv.Itoa(n) + " " + word
}

// ranges writes ascending numbers as "0-3,7".
func ranges(ranks []int) string {
	var b strings.Builder
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ranks[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(ranks[j]))
		}
		i = j + 1
	}
	return b.String()
}
