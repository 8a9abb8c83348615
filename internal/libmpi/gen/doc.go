// Command gen makes package libmpi's C headers and its table of error classes from mpi.table. It runs in the folder of package libmpi: go generate ./internal/libmpi.
package main
