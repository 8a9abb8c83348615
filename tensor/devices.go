package tensor

import (
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/accel/cuda"
	"github.com/cohort-hpc/cohort/topo"
)

// devices are those of a driver that this process has asked for, each once: what is kept for them is kept
// once.
type devices struct {
	driver accel.Driver
	mu     sync.Mutex
	all    map[int]*Device
}

var cudaDevices = &devices{driver: cuda.Driver()}

// CUDACount returns how many CUDA devices there are, without those that CUDA_VISIBLE_DEVICES hides.
// The driver, libcuda.so.1, is loaded when somebody first asks.
//
// Local.
//
// Errors: [cohort.ErrNotSupported] if there is none, or no driver, with the reason.
func CUDACount() (int, error) {
	n, err := cudaDevices.driver.Devices()
	if err != nil {
		return 0, failed("cudacount", err)
	}
	return n, nil
}

// CUDA returns a CUDA device by its number, from 0: always the same [Device].
//
// Local.
//
// Errors: [cohort.ErrNotSupported] if there is no such device, which says how many there are, or no
// driver, with the reason.
func CUDA(index int) (*Device, error) {
	d, err := cudaDevices.device(index)
	if err != nil {
		return nil, failed("cuda", err)
	}
	return d, nil
}

// LocalDevice returns the CUDA device that is the caller's turn among the ranks of its node: of two
// devices the first for its ranks 0, 2, …, and the second for 1, 3, …. c is the world, or whichever
// ranks are to share the devices. If it is nil, the place among the node's ranks is what the launcher
// says, which is known before [cohort.Init]; a process that nobody launched is the first.
//
// Local.
//
// Errors: those of [CUDA]; [cohort.ErrNotSupported] if c is nil and the launcher does not say;
// [cohort.ErrComm] for a communicator without ranks.
func LocalDevice(c *cohort.Comm) (*Device, error) {
	d, err := cudaDevices.local(c)
	if err != nil {
		return nil, failed("localdevice", err)
	}
	return d, nil
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
	rank, err := localRank(c)
	if err != nil {
		return nil, err
	}
	return d.device(rank % n)
}

// localRank returns the caller's place among the ranks of its node.
func localRank(c *cohort.Comm) (int, error) {
	if c != nil {
		for _, host := range c.Topology().Hosts {
			if i := slices.Index(host.Ranks, c.Rank()); i >= 0 {
				return i, nil
			}
		}
		return 0, fault(cohort.ErrComm, "the communicator has no ranks")
	}
	switch job := topo.ThisJob(); {
	case job.LocalRank >= 0:
		return job.LocalRank, nil
	case job.Launcher == "":
		return 0, nil
	default:
		return 0, fault(cohort.ErrNotSupported, "%s does not say which of its node's ranks this process is: call it after Init, with the world", job.Launcher)
	}
}
