package soft

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/accel/span"
)

// Config describes the devices. The zero value is one device of 1 GiB whose streams work as soon as
// they can, in goroutines.
type Config struct {
	// Name is the name of the driver; the default is soft.
	Name string

	// Unavailable is the reason why there are no devices; empty means that there are some.
	Unavailable string

	// Devices is the number of devices; 0 means 1.
	Devices int

	// Memory is the memory of each device in bytes; 0 means 1 GiB. Allocations take multiples of
	// 256.
	Memory int

	// HostCanRead makes device addresses those of memory that the host can access through View, as
	// for libraries that accept device memory.
	HostCanRead bool

	// Lazy lets callers that wait do the work: in Sync of a stream or event, in a copy of memory that is
	// not pinned, in Free, or one piece at each Done. The order among streams depends only on Seed and
	// the calls, if one goroutine makes them. Work of Do must not wait for the host.
	Lazy bool
	Seed uint64
}

// Driver implements accel.Driver.
type Driver struct {
	config  Config
	devices []*Device

	mu      sync.Mutex // guards the rest, and what the parts say it guards
	changed sync.Cond  // broadcast after every change
	fail    func(Call) error
	calls   map[Op]int
	random  *rand.Rand
	queues  []*queue // of open streams
	made    int      // number of streams made
	pins    span.Set[[]byte]
	touched []*transfer // host memory of pending copies
	stats   Stats
}

// New returns a driver. Close frees the addresses that it reserves.
func New(c Config) *Driver {
	if c.Name == "" {
		c.Name = "soft"
	}
	if c.Devices == 0 {
		c.Devices = 1
	}
	if c.Memory == 0 {
		c.Memory = 1 << 30
	}
	d := &Driver{
		config: c, calls: make(map[Op]int),
		random: rand.New(rand.NewPCG(c.Seed, 0)),
	}
	d.changed.L = &d.mu
	for i := range c.Devices {
		dev := &Device{driver: d, index: i}
		dev.standard = d.newQueue(dev)
		d.devices = append(d.devices, dev)
	}
	return d
}

// Name implements accel.Driver.
func (d *Driver) Name() string { return d.config.Name }

// Devices implements accel.Driver.
func (d *Driver) Devices() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.called(Devices, nil, 0); err != nil {
		return 0, err
	}
	if why := d.config.Unavailable; why != "" {
		return 0, d.fault(backend.ErrNotSupported, "%s", why)
	}
	return len(d.devices), nil
}

// Device implements accel.Driver.
func (d *Driver) Device(index int) (accel.Device, error) {
	n, err := d.Devices()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= n {
		return nil, d.fault(backend.ErrNotSupported, "no device %d: there are %d, numbered from 0", index, n)
	}
	return d.devices[index], nil
}

// Close frees all memory, also what callers have not freed. The driver cannot be used afterwards.
// All work must be done.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dev := range d.devices {
		if err := dev.release(); err != nil {
			return err
		}
	}
	d.pins = span.Set[[]byte]{}
	return nil
}

// fault returns an error with the driver's name.
func (d *Driver) fault(sentinel error, format string, args ...any) error {
	return &backend.Fault{Sentinel: sentinel, Text: d.config.Name + ": " + fmt.Sprintf(format, args...)}
}
