package tensor

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

func TestDeviceIsMadeOnce(t *testing.T) {
	all := &devices{driver: soft.New(soft.Config{Devices: 2})}
	var wg sync.WaitGroup
	got := make([]*Device, 20)
	for i := range got {
		wg.Go(func() { got[i], _ = all.device(i % 2) })
	}
	wg.Wait()
	for i, d := range got {
		if d == nil || d != got[i%2] || d.Index() != i%2 {
			t.Errorf("device %d is %v", i%2, d)
		}
	}
	for _, i := range []int{-1, 2, math.MaxInt} {
		if d, err := all.device(i); d != nil || !errors.Is(err, cohort.ErrNotSupported) || !strings.Contains(err.Error(), "there are 2") {
			t.Errorf("device %d is %v, %v", i, d, err)
		}
	}
	none := &devices{driver: soft.New(soft.Config{Unavailable: "no driver was installed"})}
	for _, get := range []func() (*Device, error){
		func() (*Device, error) { return none.device(0) },
		func() (*Device, error) { return none.local(nil) },
	} {
		if d, err := get(); d != nil || !errors.Is(err, cohort.ErrNotSupported) || !strings.Contains(err.Error(), "no driver was installed") {
			t.Errorf("without a driver: %v, %v", d, err)
		}
	}
}

// With or without a driver, the answers about CUDA devices agree, and the processor works.
func TestCUDAAnswersAgree(t *testing.T) {
	n, err := CUDACount()
	if err != nil {
		n = 0
		if !errors.Is(err, cohort.ErrNotSupported) || !strings.HasPrefix(err.Error(), "tensor: cudacount: ") {
			t.Errorf("CUDACount: %v, want ErrNotSupported with a reason", err)
		}
		t.Logf("there is no device: %v", err)
		if _, err := LocalDevice(nil); !errors.Is(err, cohort.ErrNotSupported) {
			t.Errorf("LocalDevice: %v, want ErrNotSupported", err)
		}
	}
	for i := range n {
		d, err := CUDA(i)
		again, _ := CUDA(i)
		if err != nil || d != again || d.Index() != i {
			t.Errorf("device %d is %v and %v, %v", i, d, again, err)
		}
	}
	for _, i := range []int{-1, n} {
		if d, err := CUDA(i); d != nil || !errors.Is(err, cohort.ErrNotSupported) {
			t.Errorf("device %d of %d is %v, %v", i, n, d, err)
		}
	}
	x, err := NewOn[float64](CPU, 3)
	if err != nil || x.SetElem(1, 2) != nil {
		t.Errorf("the processor: %v, %v", x, err)
	}
}

func TestLocalDeviceSharesOutDevices(t *testing.T) {
	all := &devices{driver: soft.New(soft.Config{Devices: 2})}
	err := cohort.Run(context.Background(), 5, func(world *cohort.Comm) error {
		d, err := all.local(world)
		if err != nil {
			return err
		}
		if d.Index() != world.Rank()%2 {
			t.Errorf("rank %d has %v", world.Rank(), d)
		}
		part, err := world.Split(world.Rank()/2, 0)
		if err != nil {
			return err
		}
		defer part.Close()
		if d, err = all.local(part); err != nil || d.Index() != part.Rank()%2 {
			t.Errorf("rank %d of a part has %v, %v", part.Rank(), d, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if d, err := all.local(&cohort.Comm{}); !errors.Is(err, cohort.ErrComm) {
		t.Errorf("of no communicator it is %v, %v", d, err)
	}
}

// Before Init the launcher's variables select the device.
func TestLocalDeviceUsesLauncherVariables(t *testing.T) {
	for _, v := range os.Environ() { // those of whatever has launched the test
		name, _, _ := strings.Cut(v, "=")
		for _, of := range []string{"COHORT_", "OMPI_", "PMI_", "MPI_", "MV2_", "SLURM_", "PALS_", "FLUX_", "PBS_"} {
			if strings.HasPrefix(name, of) && name != "COHORT_REQUIRE_TOOLS" {
				t.Setenv(name, "")
				if err := os.Unsetenv(name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	all := &devices{driver: soft.New(soft.Config{Devices: 3})}
	for _, c := range []struct {
		name string
		env  map[string]string
		want int // -1: an error that names the launcher
	}{
		{"no launcher", nil, 0},
		{"Open MPI", map[string]string{"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_LOCAL_RANK": "2"}, 2},
		{"more than devices", map[string]string{"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_LOCAL_RANK": "4"}, 1},
		{"cohort run", map[string]string{"COHORT_SIZE": "4", "COHORT_RANK": "3"}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			d, err := all.local(nil)
			if c.want >= 0 && (err != nil || d.Index() != c.want) {
				t.Errorf("got %v, %v, want device %d", d, err, c.want)
			}
			if c.want < 0 && (!errors.Is(err, cohort.ErrNotSupported) || !strings.Contains(err.Error(), c.name)) {
				t.Errorf("got %v, %v, want ErrNotSupported of %s", d, err, c.name)
			}
		})
	}
}
