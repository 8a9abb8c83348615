package file_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/file"
)

// four has four ranks in this process open a file in a new folder, run a function, and close the file.
func four(body func(world *cohort.Comm, f *file.File) error) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	err = cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		f, err := file.Open(world, filepath.Join(dir, "data"), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		return errors.Join(body(world, f), f.Close())
	})
	if err != nil {
		fmt.Println(err)
	}
}

// The last rank prints a text file.
func show(world *cohort.Comm, f *file.File) error {
	size, err := f.Size()
	if err != nil || world.Rank() != world.Size()-1 {
		return err
	}
	text := make([]byte, size)
	_, err = f.ReadAt(text, 0)
	fmt.Printf("%s", text)
	return err
}

// To open a missing file is the same error on every rank.
func ExampleOpen() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		_, err := file.Open(world, "no/such/file", os.O_RDONLY, 0)
		if world.Rank() == 3 {
			fmt.Println(err, errors.Is(err, fs.ErrNotExist))
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// open: no/such/file: rank 0: no such file or directory true
	// <nil>
}

func ExampleFile_WriteAtAll() {
	four(func(world *cohort.Comm, f *file.File) error {
		line := fmt.Sprintf("line %d\n", world.Rank())
		if _, err := f.WriteAtAll([]byte(line), int64(len(line)*world.Rank())); err != nil {
			return err
		}
		return show(world, f)
	})
	// Output:
	// line 0
	// line 1
	// line 2
	// line 3
}

// The file has 10 numbers; each rank reads up to 3 of them.
func ExampleFile_ReadAtAll() {
	four(func(world *cohort.Comm, f *file.File) error {
		numbers := []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
		if world.Rank() > 0 {
			numbers = nil
		}
		if _, err := f.WriteAtAll(file.Bytes(numbers), 0); err != nil {
			return err
		}
		mine := make([]int32, 3)
		n, err := f.ReadAtAll(file.Bytes(mine), int64(12*world.Rank()))
		if world.Rank() == 3 {
			fmt.Println(mine[:n/4], err == io.EOF)
		}
		if err == io.EOF {
			err = nil
		}
		return err
	})
	// Output:
	// [9] true
}

// The ranks have columns of a table, and the file has its rows.
func ExampleWriteView() {
	four(func(world *cohort.Comm, f *file.File) error {
		column := []byte{'a', 'b', 'c'}
		for i := range column {
			column[i] += 3 * byte(world.Rank())
		}
		cells := cohort.Vector(3, 1, world.Size()+1) // a row of the file ends with a line break
		if err := file.WriteView(f, column, int64(world.Rank()), cells); err != nil {
			return err
		}
		breaks := []byte("\n\n\n")
		if world.Rank() > 0 {
			breaks, cells = nil, cohort.Layout{}
		}
		if err := file.WriteView(f, breaks, 4, cells); err != nil {
			return err
		}
		return show(world, f)
	})
	// Output:
	// adgj
	// behk
	// cfil
}

// Each rank reads the block of a matrix of 4 by 4 numbers that it computes on.
func ExampleReadView() {
	four(func(world *cohort.Comm, f *file.File) error {
		row := []float64{0, 1, 2, 3}
		for j := range row {
			row[j] += 10 * float64(world.Rank())
		}
		if _, err := f.WriteAtAll(file.Bytes(row), int64(32*world.Rank())); err != nil {
			return err
		}
		block := make([]float64, 4)
		part := cohort.Subarray([]int{4, 4}, []int{2, 2}, []int{world.Rank() / 2 * 2, world.Rank() % 2 * 2})
		err := file.ReadView(f, block, 0, part)
		if world.Rank() == 3 {
			fmt.Println(block)
		}
		return err
	})
	// Output:
	// [22 23 32 33]
}

// Ranks append what they have, whatever its length.
func ExampleFile_AppendAll() {
	four(func(world *cohort.Comm, f *file.File) error {
		for step := range 2 {
			var report []byte
			if world.Rank()%2 == 1 {
				report = fmt.Appendf(nil, "step %d: rank %d\n", step, world.Rank())
			}
			if _, err := f.AppendAll(report); err != nil {
				return err
			}
		}
		return show(world, f)
	})
	// Output:
	// step 0: rank 1
	// step 0: rank 3
	// step 1: rank 1
	// step 1: rank 3
}

// WriteAt and ReadAt need no other rank.
func ExampleFile_WriteAt() {
	four(func(world *cohort.Comm, f *file.File) error {
		if world.Rank() == 2 {
			if _, err := f.WriteAt([]byte("from rank 2\n"), 0); err != nil {
				return err
			}
		}
		if err := f.Sync(); err != nil { // all ranks wait for rank 2
			return err
		}
		return show(world, f)
	})
	// Output:
	// from rank 2
}

func ExampleFile_ReadAt() {
	four(func(world *cohort.Comm, f *file.File) error {
		if err := f.SetSize(5); err != nil {
			return err
		}
		n, err := f.ReadAt(make([]byte, 10), 2)
		if world.Rank() == 0 {
			fmt.Println(n, err)
		}
		return nil
	})
	// Output:
	// 3 EOF
}

// Room on the disk is reserved before the computation, which does not fail for lack of it at the end.
func ExampleFile_Preallocate() {
	four(func(world *cohort.Comm, f *file.File) error {
		err := f.Preallocate(1 << 16)
		if errors.Is(err, cohort.ErrNotSupported) { // only Linux can
			err = f.SetSize(1 << 16)
		}
		if err != nil {
			return err
		}
		size, err := f.Size()
		if world.Rank() == 0 {
			fmt.Println(size)
		}
		return err
	})
	// Output:
	// 65536
}

func ExampleFile_SetSize() {
	four(func(world *cohort.Comm, f *file.File) error {
		if err := f.SetSize(1000); err != nil {
			return err
		}
		size, err := f.Size()
		if world.Rank() == 3 {
			fmt.Println(size)
		}
		return err
	})
	// Output:
	// 1000
}

// Each rank has two columns of an array. NumPy reads the file with numpy.load, and ranks read any part of it.
func ExampleWriteNpy() {
	four(func(world *cohort.Comm, f *file.File) error {
		sizes, mine := []int{2, 8}, []int{2, 2}
		part := make([]int64, 4)
		for i := range part {
			part[i] = int64(10*(i/2) + 2*world.Rank() + i%2)
		}
		if err := file.WriteNpy(f, part, sizes, mine, []int{0, 2 * world.Rank()}); err != nil {
			return err
		}
		row := make([]int64, 8)
		err := file.ReadNpy(f, row, []int{1, 8}, []int{1, 0})
		if world.Rank() == 0 {
			fmt.Println(row)
		}
		return err
	})
	// Output:
	// [10 11 12 13 14 15 16 17]
}

// The header of a NumPy file says what to read.
func ExampleReadNpy() {
	four(func(world *cohort.Comm, f *file.File) error {
		if err := file.WriteNpy(f, []float32{float32(world.Rank())}, []int{4}, []int{1}, []int{world.Rank()}); err != nil {
			return err
		}
		a, err := file.ReadNpyHeader(f)
		if err != nil {
			return err
		}
		all := make([]float32, a.Shape[0])
		err = file.ReadNpy(f, all, a.Shape, []int{0})
		if world.Rank() == 3 {
			fmt.Println(a.Shape, all)
		}
		return err
	})
	// Output:
	// [4] [0 1 2 3]
}
