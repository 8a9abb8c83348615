package mpi

import (
	"fmt"
	"strings"
)

// cellSize is the length of MPICH's cells in shared memory, unless BufferSize or the user sets
// another.
const cellSize = "16384"

// limits describes the message limits in force if EagerLimit or BufferSize is set, else it is
// empty. text is the library's version text, lookup finds variables of the environment.
func (s Settings) limits(m maker, text string, lookup func(string) (string, bool)) string {
	if s.EagerLimit == 0 && s.BufferSize == 0 {
		return ""
	}
	value := func(otherwise string, names ...string) string {
		for _, n := range names {
			for _, alias := range aliases(n, m) {
				if v, ok := lookup(alias); ok {
					return v + " bytes (" + alias + ")"
				}
			}
		}
		return otherwise
	}
	const own = "the library's own limit"
	_, device, _ := strings.Cut(text, "MPICH Device:")
	device, _, _ = strings.Cut(strings.TrimSpace(device), "\n")
	var between, inside string
	switch {
	case strings.HasPrefix(device, "ch4:ofi"):
		// On one node the message has to fit into a cell, whatever the network's limit.
		between = value(own, "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD", "MPIR_CVAR_CH4_OFI_EAGER_MAX_MSG_SIZE")
		inside = value(cellSize+" bytes", "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE") + ", a cell of shared memory, which EagerLimit does not change"
	case strings.HasPrefix(device, "ch3"):
		between = value(own, "MPIR_CVAR_CH3_EAGER_MAX_MSG_SIZE")
		inside = between
	case m == makeOpenMPI || m == makeUnknownOpenMPI:
		between = value(own, "OMPI_MCA_btl_tcp_eager_limit", "UCX_RNDV_THRESH")
		inside = value(own, "OMPI_MCA_btl_sm_eager_limit", "OMPI_MCA_btl_vader_eager_limit")
	default:
		between = value(own, "UCX_RNDV_THRESH")
		inside = between
	}
	return fmt.Sprintf("limits in force: messages are sent before their receive is posted up to %s on one node, and up to %s between nodes", inside, between)
}
