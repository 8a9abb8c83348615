// Command render draws a part of the Mandelbrot set and writes it as a PNG file. Some tiles of the
// picture take a hundred times as long as others, so rank 0 hands them out one by one.
//
//	go run ./cmd/cohort run -n 4 ./examples/render -o mandelbrot.png
//
// Rank 0 prints how much of the picture is drawn, and at the end how many tiles each rank has drawn.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"iter"
	"log"
	"math"
	"math/cmplx"
	"os"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/tasks"
)

const (
	tile    = 64                    // edge of a tile in pixels
	samples = 3                     // of a pixel in each direction
	limit   = 4000                  // iterations of a point that may be in the set
	center  = -0.743643 + 0.131825i // of the picture, in the valley of the seahorses
	width   = 0.0045                // of the picture in the complex plane
)

func main() {
	log.SetFlags(0)
	name := flag.String("o", "mandelbrot.png", "file to write")
	pixels := flag.Int("width", 1280, "width of the picture in pixels")
	flag.Parse()
	if *pixels < 2 {
		log.Fatalf("-width %d: the picture needs at least 2 pixels", *pixels)
	}
	cohort.Main(func(_ context.Context, world *cohort.Comm) error {
		return write(world, *name, image.Pt(*pixels, *pixels*5/8), os.Stdout)
	})
}

// write draws the picture, and writes it to a file on rank 0, which creates the file before the work begins. If
// something fails, it removes the file.
func write(world *cohort.Comm, name string, size image.Point, progress io.Writer) (err error) {
	var f *os.File
	if world.Rank() == 0 {
		if f, err = os.Create(name); err != nil {
			return err
		}
		defer func() {
			if err = errors.Join(err, f.Close()); err != nil {
				os.Remove(name)
			} else {
				fmt.Fprintln(progress, "the picture is in", name)
			}
		}()
	}
	picture, err := render(world, size, progress)
	if err != nil || f == nil {
		return err
	}
	return png.Encode(f, picture)
}

// part is a tile that a rank has drawn.
type part struct {
	Image *image.RGBA // its Rect is the tile's place in the picture
	Rank  int
}

// render draws the picture. It returns it on rank 0.
func render(world *cohort.Comm, size image.Point, progress io.Writer) (*image.RGBA, error) {
	picture := image.NewRGBA(image.Rectangle{Max: size})
	drawn := make([]int, world.Size())
	n, total := 0, (size.X+tile-1)/tile*((size.Y+tile-1)/tile)
	for p, err := range tasks.MapUnordered(context.Background(), world, tiles(picture.Rect), func(_ context.Context, r image.Rectangle) (part, error) {
		return part{drawTile(r, size), world.Rank()}, nil
	}) {
		if err != nil {
			return nil, err
		}
		draw.Draw(picture, p.Image.Rect, p.Image, p.Image.Rect.Min, draw.Src)
		drawn[p.Rank]++
		if n++; n*10/total > (n-1)*10/total {
			fmt.Fprintf(progress, "%d %%\n", n*10/total*10)
		}
	}
	if world.Rank() == 0 {
		fmt.Fprintln(progress, "tiles by rank:", drawn)
	}
	return picture, nil
}

// tiles yields the tiles of a picture.
func tiles(all image.Rectangle) iter.Seq[image.Rectangle] {
	return func(yield func(image.Rectangle) bool) {
		for y := all.Min.Y; y < all.Max.Y; y += tile {
			for x := all.Min.X; x < all.Max.X; x += tile {
				if !yield(image.Rect(x, y, x+tile, y+tile).Intersect(all)) {
					return
				}
			}
		}
	}
}

// drawTile draws the part r of a picture.
func drawTile(r image.Rectangle, size image.Point) *image.RGBA {
	m := image.NewRGBA(r)
	step := width / float64(size.X*samples)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			var sum [3]float64
			for i := range samples * samples {
				dx, dy := float64((x-size.X/2)*samples+i%samples), float64((size.Y/2-y)*samples-i/samples)
				for k, v := range shade(escape(center + complex(dx*step, dy*step))) {
					sum[k] += v / (samples * samples)
				}
			}
			m.SetRGBA(x, y, color.RGBA{uint8(sum[0] * 255), uint8(sum[1] * 255), uint8(sum[2] * 255), 255})
		}
	}
	return m
}

// escape returns how many steps of z*z + c it takes to leave a circle around the set. The number is real and changes
// smoothly with c (Vepstas, "Renormalizing the Mandelbrot Escape", 1997). It is 0 for a point that does not leave.
func escape(c complex128) float64 {
	var z complex128
	for n := range limit {
		z = z*z + c
		if real(z)*real(z)+imag(z)*imag(z) > 1e6 {
			return float64(n) + 1 - math.Log2(math.Log(cmplx.Abs(z)))
		}
	}
	return 0
}

// shade returns the color of a number of steps, red, green and blue from 0 to 1.
func shade(steps float64) (rgb [3]float64) {
	if steps <= 0 {
		return rgb
	}
	t := math.Log(steps) * 1.4
	for k, phase := range []float64{3.0, 3.35, 3.75} {
		rgb[k] = 0.5 - 0.5*math.Cos(2*t+phase)
	}
	return rgb
}
