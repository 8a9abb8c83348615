// Command gen makes package libmpi's C headers, its table of error classes and a part of
// docs/mpi-coverage.md from mpi.table. It runs in the folder of package libmpi: go generate ./internal/libmpi.
package main
