// Calls the functions that an MPI library has registered for the end of the process.
//
// MPICH reports the good end of a rank to its launcher (PMI_Finalize) not in MPI_Finalize but in a
// function that it registers with atexit, so that MPI can begin again. A Go program ends without the C
// library's exit and never calls it. The launcher then counts the rank as failed, and kills those that
// are still ending.
#define _GNU_SOURCE
#include "load.h"

#include <link.h>
#include <stdint.h>

// __cxa_finalize calls the functions that one library has registered, each once, as if the library
// were unloaded. Its argument is the address of the library's variable __dso_handle.
extern void __cxa_finalize(void *) __attribute__((weak));

enum { HANDLES = 1024 };

typedef struct {
	uintptr_t inside; // an address in the library
	int n;
	void *handle[HANDLES];
} search;

// visit records the words of the library that hold their own address. __dso_handle is one; others,
// such as the heads of empty lists, are no library's handle.
static int visit(struct dl_phdr_info *info, size_t size, void *data) {
	search *s = data;
	int found = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && s->inside - (info->dlpi_addr + p->p_vaddr) < p->p_memsz) found = 1;
	}
	if (!info->dlpi_name || !*info->dlpi_name) return found; // the program itself, which does not end here
	for (int i = 0; found && i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_W) || !(p->p_flags & PF_R)) continue;
		uintptr_t word = sizeof(void *), from = info->dlpi_addr + p->p_vaddr;
		for (uintptr_t a = (from + word - 1) / word * word; a + word <= from + p->p_filesz && s->n < HANDLES; a += word)
			if (*(uintptr_t *)a == a) s->handle[s->n++] = (void *)a;
	}
	return found; // not 0 ends the iteration
}

// coh_end_library calls what the library has registered for the end of the process. It follows
// MPI_Finalize.
void coh_end_library(void) {
	static search s;
	s.n = 0;
	if (!__cxa_finalize || !(s.inside = (uintptr_t)coh_symbol("PMPI_Finalize"))) return;
	dl_iterate_phdr(visit, &s);
	for (int i = 0; i < s.n; i++) __cxa_finalize(s.handle[i]);
}
