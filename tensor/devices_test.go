package tensor

import (
	"context"
	"errors"
	"math"
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
	for _, c := range []*cohort.Comm{nil, {}} {
		if d, err := all.local(c); !errors.Is(err, cohort.ErrComm) {
			t.Errorf("of no communicator it is %v, %v", d, err)
		}
	}
}
