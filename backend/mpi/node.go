package mpi

import (
	"bytes"
	"encoding/binary"

	"github.com/cohort-hpc/cohort/topo"
)

// oversubscribed reports whether this node has more ranks than processors to run them at the same
// time. It counts the processors of all ranks, since a bound rank sees fewer. Unknown numbers count
// as enough.
func oversubscribed(job *topo.Job, node *topo.Node) bool {
	common := topo.Node{CPUs: node.Permitted, Limits: node.Limits}
	return len(common.CPUs) > 0 && job.LocalSize > common.Usable()
}

// maxHostName is the longest node name that Linux allows (HOST_NAME_MAX). Longer names of
// schedulers are cut.
const maxHostName = 64

// nodeRecord is a rank's record of its node: the lowest rank there, in 8 bytes, and the name.
func nodeRecord(lowest []byte, host string) []byte {
	record := make([]byte, 8+maxHostName)
	copy(record, lowest)
	copy(record[8:], host)
	return record
}

// readNodes returns, from the records of all ranks, each rank's node and the nodes' names. Nodes
// are numbered in the order of their lowest ranks. Nodes with the same name stay apart.
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
