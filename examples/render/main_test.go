package main

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// 0, the cusp at 0.25, points of the disk of radius 1/4 around -1, and i and -2, whose orbits end in cycles, are in the set.
func TestEscapeKnowsTheSet(t *testing.T) {
	for _, c := range []complex128{0, 0.25, -1, -1.24, -1 + 0.24i, 1i, -2} {
		if n := escape(c); n != 0 {
			t.Errorf("%v left after %v steps, and is in the set", c, n)
		}
	}
	last := 0.0
	for _, c := range []complex128{1, 0.5, 0.3, 0.26} { // the closer to the cusp at 0.25, the later
		n := escape(c)
		if n <= last {
			t.Errorf("%v left after %v steps, want more than %v", c, n, last)
		}
		last = n
	}
}

// Whichever ranks draw the tiles, the picture is that of one rank, and can be read from its file.
func TestPictureIsThatOfOneRank(t *testing.T) {
	var want *image.RGBA
	for _, n := range []int{1, 2, 4} {
		err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
			m, err := render(world, image.Pt(150, 90), io.Discard)
			if err != nil || world.Rank() > 0 {
				return err
			}
			if want == nil {
				want = m
			}
			if !bytes.Equal(m.Pix, want.Pix) {
				t.Errorf("the picture of %d ranks is another one", n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(t.TempDir(), "m.png")
	if err := cohort.Run(t.Context(), 2, func(world *cohort.Comm) error { return write(world, name, want.Rect.Max, io.Discard) }); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := png.Decode(f)
	if err != nil || got.Bounds() != want.Rect || got.At(70, 50) != want.At(70, 50) {
		t.Errorf("%v: the file's picture is not the one that was written", err)
	}
}

func TestMissingFolderIsFoundBeforeTheWork(t *testing.T) {
	name := filepath.Join(t.TempDir(), "no such folder", "m.png")
	var progress bytes.Buffer // of rank 0
	err := cohort.Run(t.Context(), 2, func(world *cohort.Comm) error { return write(world, name, image.Pt(150, 90), &progress) })
	if !errors.Is(err, os.ErrNotExist) || progress.Len() > 0 {
		t.Errorf("%v after %q, want %v at once", err, progress.String(), os.ErrNotExist)
	}
}
