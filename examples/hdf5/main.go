//go:build hdf5

// Command hdf5 writes one HDF5 file from all ranks, with the parallel HDF5 library for C. It shows how a C
// library that uses MPI gets a communicator of cohort. It needs Debian's libhdf5-openmpi-dev, and Open MPI's
// launcher:
//
//	go build -tags hdf5 ./examples/hdf5
//	mpirun.openmpi -n 2 ./hdf5 waves.h5
//	h5dump -H waves.h5
//
// Rank 0 prints the shape of the dataset in the file.
package main

/*
#cgo pkg-config: hdf5-openmpi ompi-c
#include <hdf5.h>
#include <stdint.h>

// write_rows writes n of the rows of a dataset, from first on. The ranks of comm write all of them. name ends
// with a zero byte.
static int write_rows(_GoString_ name, uintptr_t comm, hsize_t rows, hsize_t columns, hsize_t first, hsize_t n, const double *data) {
	hsize_t all[] = {rows, columns}, part[] = {n, columns}, start[] = {first, 0};
	hid_t access = H5Pcreate(H5P_FILE_ACCESS), transfer = H5Pcreate(H5P_DATASET_XFER);
	H5Pset_fapl_mpio(access, (MPI_Comm)comm, MPI_INFO_NULL);
	H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
	hid_t space = H5Screate_simple(2, all, NULL), memory = H5Screate_simple(2, part, NULL);
	H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, part, NULL);
	herr_t status = -1;
	hid_t file = H5Fcreate(_GoStringPtr(name), H5F_ACC_TRUNC, H5P_DEFAULT, access);
	if (file >= 0) {
		hid_t set = H5Dcreate2(file, "waves", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
		if (set >= 0) {
			status = H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, transfer, data);
			H5Dclose(set);
		}
		if (H5Fclose(file) < 0) status = -1;
	}
	H5Sclose(memory);
	H5Sclose(space);
	H5Pclose(transfer);
	H5Pclose(access);
	return status < 0;
}
*/
import "C"

import (
	"context"
	"fmt"
	"math"
	"os"

	"github.com/cohort-hpc/cohort"
)

const rows, columns = 100, 40

func main() {
	cohort.Main(func(_ context.Context, world *cohort.Comm) error {
		name := "waves.h5"
		if len(os.Args) > 1 {
			name = os.Args[1]
		}
		err := write(world, name)
		if err == nil && world.Rank() == 0 {
			fmt.Printf("%s: waves, %d x %d\n", name, rows, columns)
		}
		return err
	})
}

// write writes rows and columns of values to a file. Each rank computes and writes a part of the rows.
func write(world *cohort.Comm, name string) error {
	c, err := world.Dup() // the library's messages must not meet those of this program
	if err != nil {
		return err
	}
	defer c.Close()
	handle, err := c.MPIHandle()
	if err != nil {
		return err
	}
	first, end := rows*c.Rank()/c.Size(), rows*(c.Rank()+1)/c.Size()
	data := make([]float64, max(1, (end-first)*columns))
	for i := range (end - first) * columns {
		data[i] = wave(first+i/columns, i%columns)
	}
	// SAFETY: HDF5 keeps neither the name nor the data after the call.
	if C.write_rows(name+"\x00", C.uintptr_t(handle), rows, columns, C.hsize_t(first), C.hsize_t(end-first), (*C.double)(&data[0])) != 0 {
		return fmt.Errorf("HDF5 cannot write %s: its error is above", name)
	}
	return nil
}

// wave is the value of a row and column.
func wave(row, column int) float64 {
	return math.Sin(float64(row)/10) * math.Cos(float64(column)/10)
}
