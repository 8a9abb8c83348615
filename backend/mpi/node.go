package mpi

import (
	"bytes"
	"encoding/binary"

	"github.com/cohort-hpc/cohort/topo"
)

// oversubscribed reports whether the ranks of this node are more than can run at
// the same time. A rank that is bound sees fewer processors than they have in
// common, so that its own affinity does not count; what is not known is taken to
// be in order.
func oversubscribed(job *topo.Job, node *topo.Node) bool {
	common := topo.Node{CPUs: node.Permitted, Limits: node.Limits}
	return len(common.CPUs) > 0 && job.LocalSize > common.Usable()
}

// maxHostName is the longest name that Linux gives a node (HOST_NAME_MAX). What a
// scheduler calls a node is cut there.
const maxHostName = 64

// nodeRecord is what a rank tells the others of its node: the lowest rank there, as
// 8 bytes, and the name.
func nodeRecord(lowest []byte, host string) []byte {
	record := make([]byte, 8+maxHostName)
	copy(record, lowest)
	copy(record[8:], host)
	return record
}

// readNodes returns from all ranks' records the number of each one's node, nodes
// being counted in the order of their lowest ranks, and the names of the nodes.
// Those of the same name stay apart.
func readNodes(records []byte) (nodes []int, hosts []string) {
	numbers := make(map[uint64]int)
	for len(records) > 0 {
		lowest, host := binary.LittleEndian.Uint64(records), records[8:8+maxHostName]
		records = records[8+maxHostName:]
		n, known := numbers[lowest]
		if !known {
			n = len(hosts)
			numbers[lowest] = n
			host, _, _ = bytes.Cut(host, []byte{0})
			hosts = append(hosts, string(host))
		}
		nodes = append(nodes, n)
	}
	return nodes, hosts
}
