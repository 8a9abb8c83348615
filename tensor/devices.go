package tensor

import (
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/accel/cuda"
)

// devices holds one Device for each device of a driver that this process has asked for, so that
// caches are kept once per device.
type devices struct {
	driver accel.Driver
	mu     sync.Mutex
	all    map[int]*Device
}

var cudaDevices = &devices{driver: cuda.Driver()}

// CUDACount returns the number of CUDA devices that CUDA_VISIBLE_DEVICES does not hide. The first
// call loads the driver, libcuda.so.1.
//
// Not collective.
//
// Errors: [cohort.ErrNotSupported], with the reason, if the machine has no device or no driver.
func CUDACount() (int, error) {
	n, err := cudaDevices.driver.Devices()
	return n, failed("cudacount", err)
}

// CUDA returns the CUDA device of a number, from 0. It returns the same [Device] each time.
//
// Not collective.
//
// Errors: [cohort.ErrNotSupported] if no device has that number, with the number of devices, or if
// the machine has no driver, with the reason.
func CUDA(index int) (*Device, error) {
	d, err := cudaDevices.device(index)
	return d, failed("cuda", err)
}

// LocalDevice assigns the CUDA devices of a node to its ranks in turn: with two devices, the first
// goes to ranks 0, 2, … of the node and the second to ranks 1, 3, …. c is the world, or a
// communicator of the ranks that share the devices. Without a device it returns nil, which stands
// for [CPU], and [cohort.ErrNotSupported].
//
// Not collective.
//
// Errors: those of [CUDA]; [cohort.ErrComm] for nil, or a communicator without ranks.
func LocalDevice(c *cohort.Comm) (*Device, error) {
	d, err := cudaDevices.local(c)
	return d, failed("localdevice", err)
}

func (d *devices) device(index int) (*Device, error) {
	acc, err := d.driver.Device(index)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = make(map[int]*Device)
	}
	if d.all[index] == nil {
		d.all[index] = newDevice(d.driver.Name(), acc)
	}
	return d.all[index], nil
}

func (d *devices) local(c *cohort.Comm) (*Device, error) {
	n, err := d.driver.Devices()
	if err != nil {
		return nil, err
	}
	for _, host := range c.Topology().Hosts {
		if i := slices.Index(host.Ranks, c.Rank()); i >= 0 {
			return d.device(i % n)
		}
	}
	return nil, fault(cohort.ErrComm, "the communicator has no ranks")
}
