package file

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// BenchmarkRows has four ranks write and read rows of a table in turn, 16 MiB in all: together, and each on its own.
func BenchmarkRows(b *testing.B) {
	const ranks, total = 4, 16 << 20
	for _, row := range []int{128, 1024, 8192} {
		rows := total / ranks / row
		l := cohort.Vector(rows, row, ranks*row)
		pieces := func(do func(p []byte, off int64) (int, error)) func(*File, []byte, int64) error {
			return func(_ *File, p []byte, off int64) error {
				for i := range rows {
					if _, err := do(p[i*row:][:row], off+int64(i*ranks*row)); err != nil {
						return err
					}
				}
				return nil
			}
		}
		for what, move := range map[string]func(f *File, p []byte, off int64) error{
			"write/together": func(f *File, p []byte, off int64) error { return WriteView(f, p, off, l) },
			"read/together":  func(f *File, p []byte, off int64) error { return ReadView(f, p, off, l) },
			"write/alone":    func(f *File, p []byte, off int64) error { return pieces(f.WriteAt)(f, p, off) },
			"read/alone":     func(f *File, p []byte, off int64) error { return pieces(f.ReadAt)(f, p, off) },
		} {
			b.Run(fmt.Sprintf("%s/%d", what, row), func(b *testing.B) {
				b.SetBytes(total)
				b.ReportAllocs()
				name := filepath.Join(b.TempDir(), "f")
				err := cohort.Run(b.Context(), ranks, func(world *cohort.Comm) error {
					f, err := Open(world, name, os.O_RDWR|os.O_CREATE, 0o600)
					if err != nil {
						return err
					}
					defer f.Close()
					p, off := make([]byte, total/ranks), int64(row*world.Rank())
					if err := WriteView(f, p, off, l); err != nil {
						return err
					}
					if world.Rank() == 0 {
						b.ResetTimer()
					}
					for range b.N {
						if err := move(f, p, off); err != nil {
							return err
						}
						if err := world.Barrier(); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
