// Loading a library, and its end; see load_linux.c.
#ifndef COH_LOAD_H
#define COH_LOAD_H

#include "shim.h"

enum { COH_MPICH = 1, COH_OMPI, COH_STD }; // as ABI in Go

int coh_present(void);
int coh_load(const char *path, char *text, int size);
int coh_bind(int abi, char *text, int size);
int coh_recognize(void);
int coh_init(int level, int *provided);
const char *coh_loaded_path(void);
int coh_may_call(void);
void coh_adopt(void);
void coh_end_library(void); // exit_linux.c
int coh_blocked(void);      // blocked_linux.c
void coh_end_blocked(void);

#endif
