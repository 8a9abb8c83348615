// Runs what an MPI library has left for the end of the process.
//
// MPICH tells its launcher that a rank has ended well (PMI_Finalize) in a function that it registers
// with atexit, not in MPI_Finalize, so that MPI can begin again. A Go program ends without the C
// library's exit, so it is never called, and the launcher takes the rank for one that failed, and kills
// those that are still on their way out.
#define _GNU_SOURCE
#include "load.h"

#include <link.h>
#include <stdint.h>

// __cxa_finalize calls the functions that one library has registered, each once, as when the library
// were unloaded. The library is told by the address of a variable of its own, __dso_handle.
extern void __cxa_finalize(void *) __attribute__((weak));

enum { HANDLES = 1024 };

typedef struct {
	uintptr_t inside; // an address in the library
	int n;
	void *handle[HANDLES];
} search;

// visit notes the words of the library at hand that hold their own address. __dso_handle is one; the
// others, such as the heads of empty lists, are nobody's handle.
static int visit(struct dl_phdr_info *info, size_t size, void *data) {
	search *s = data;
	int found = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && s->inside - (info->dlpi_addr + p->p_vaddr) < p->p_memsz) found = 1;
	}
	if (!info->dlpi_name || !*info->dlpi_name) return found; // the program itself, whose end this is not
	for (int i = 0; found && i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_W) || !(p->p_flags & PF_R)) continue;
		uintptr_t word = sizeof(void *), from = info->dlpi_addr + p->p_vaddr;
		for (uintptr_t a = (from + word - 1) / word * word; a + word <= from + p->p_filesz && s->n < HANDLES; a += word)
			if (*(uintptr_t *)a == a) s->handle[s->n++] = (void *)a;
	}
	return found; // not 0: no other library
}

// coh_end_library calls what the library has registered for the end of the process. It comes after
// MPI_Finalize; nothing but what may follow that is called afterwards.
void coh_end_library(void) {
	static search s;
	s.n = 0;
	if (!__cxa_finalize || !(s.inside = (uintptr_t)coh_symbol("PMPI_Finalize"))) return;
	dl_iterate_phdr(visit, &s);
	for (int i = 0; i < s.n; i++) __cxa_finalize(s.handle[i]);
}
