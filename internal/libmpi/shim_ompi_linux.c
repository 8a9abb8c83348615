#include "abi_ompi.h"

#include <stdint.h>
#include <stdio.h>

#include "shim.h"

#define COH_SHIM coh_shim_ompi
#define OUT(h) ((uintptr_t)(h))

static inline int64_t status_bytes(const MPI_Status *st) { return (int64_t)st->_ucount; }

void *coh_ompi_sym[COH_OMPI_SYMS];

// resolve_handles finds the objects that predefined handles are the addresses of.
static int resolve_handles(char *missing, int size) {
	for (int i = 0; i < COH_OMPI_SYMS; i++) coh_ompi_sym[i] = coh_symbol(coh_ompi_names[i]);
	if (!coh_ompi_sym[COH_SYM_ompi_mpi_comm_world]) {
		snprintf(missing, size, "ompi_mpi_comm_world");
		return COH_MISSING;
	}
	return 0;
}

#include "shim_body.h"
