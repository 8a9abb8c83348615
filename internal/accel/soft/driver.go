package soft

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/accel/span"
)

// Config says what devices there are. The zero value is one device of 1 GiB whose streams work as soon
// as they can.
type Config struct {
	// Name is what the driver is called by, soft if it is empty.
	Name string

	// Unavailable, if it is not empty, is why there are no devices.
	Unavailable string

	// Devices is how many there are, 1 if it is 0.
	Devices int

	// Memory is how many bytes each has, 1 GiB if it is 0. Allocations take multiples of 256.
	Memory int

	// Pinnable is how many bytes of host memory can be pinned at a time, any number if it is 0.
	Pinnable int

	// HostCanRead makes addresses those of the memory itself, which the host then can read and write
	// through View: a device whose memory libraries take as their own.
	HostCanRead bool

	// Delay, if it is there, says how long a piece of work waits before it is done. See [Random].
	Delay func(Work) time.Duration

	// Lazy has work done only while somebody waits for any: in Sync of a stream or of an event, in a
	// copy of memory that is not pinned, in Free, or one piece at each Done. Pieces are then done one at
	// a time, in an order among streams that Seed decides: the same for the same calls of one
	// goroutine. Work of Do must then not wait for the host.
	Lazy bool
	Seed uint64

	// Fail, if it is there, is asked at every call, and if it returns an error the call fails with
	// it. See [Nth]. It is called with a lock held, and must not call the driver.
	Fail func(Call) error
}

// Work is what a stream does: its number in the stream, and the stream's in the driver, both from 0.
type Work struct {
	Op             Op
	Stream, Number int
	Bytes          int
}

// Random returns delays between 0 and most, which the seed decides for each piece of work.
func Random(seed uint64, most time.Duration) func(Work) time.Duration {
	return func(w Work) time.Duration {
		r := rand.New(rand.NewPCG(seed, uint64(w.Stream)<<32|uint64(w.Number)))
		return time.Duration(r.Int64N(int64(max(most, 0)) + 1))
	}
}

// Driver implements accel.Driver.
type Driver struct {
	config  Config
	devices []*Device

	mu      sync.Mutex // guards all that follows, and what the parts say it guards
	changed sync.Cond  // broadcast when anything did
	fail    func(Call) error
	calls   map[Op]int
	random  *rand.Rand
	streams []*queue // with work in them
	made    int      // streams so far
	handles map[uintptr]*queue
	waiting []*waiter
	turn    *queue // whose work is being done, or may be, if the driver is lazy
	pieces  int    // of work done so far
	pins    span.Set[[]byte]
	touched []*transfer // host memory of copies that are under way
	stats   Stats
}

// New returns a driver. What it holds for itself, addresses without memory, it gives back at Close, or
// when it is no longer used.
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
		config: c, fail: c.Fail, calls: make(map[Op]int), handles: make(map[uintptr]*queue),
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
		return nil, d.fault(backend.ErrNotSupported, "there is no device %d: there are %d, numbered from 0", index, n)
	}
	return d.devices[index], nil
}

// Close gives back all memory, also what others still hold: the driver is of no use any more. Work
// must be done.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dev := range d.devices {
		if err := dev.release(); err != nil {
			return err
		}
	}
	for _, p := range d.pins.All() {
		if err := unpinned(p.Value); err != nil {
			return err
		}
	}
	d.pins.Clear()
	return nil
}

// fault returns an error that says of whom it is.
func (d *Driver) fault(sentinel error, format string, args ...any) error {
	return &backend.Fault{Sentinel: sentinel, Text: d.config.Name + ": " + fmt.Sprintf(format, args...)}
}
