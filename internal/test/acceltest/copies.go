package acceltest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cohort-hpc/cohort/internal/accel"
)

// testLengths copies memory of many lengths from and to unaligned addresses, in all directions,
// pinned or not, and checks everything around it.
func testLengths(t *testing.T, dev accel.Device) {
	r := rig{t, dev}
	const margin = 300
	lengths := []int{1, 2, 3, 7, 8, 9, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, 65537, 1<<20 + 13}
	for _, n := range lengths {
		size := n + 2*margin
		a, b := r.alloc(size), r.alloc(size)
		for _, host := range [][]byte{make([]byte, size), r.pin(size)} {
			s := r.stream()
			for _, off := range [][2]int{{0, 0}, {1, 0}, {0, 3}, {7, 129}, {257, 1}} {
				from, to := off[0], off[1]
				modelA, modelB := noise(1, make([]byte, size)), noise(2, make([]byte, size))
				// Not host itself, which must not change until a copy is done.
				r.ok(s.ToDevice(a, modelA))
				r.ok(s.ToDevice(b, modelB))
				noise(3, host)

				r.ok(s.ToDevice(a+accel.Address(to), host[from:from+n]))
				copy(modelA[to:], host[from:from+n])
				r.ok(s.Within(b+accel.Address(from), a+accel.Address(to), n))
				copy(modelB[from:from+n], modelA[to:])
				what := fmt.Sprintf("%d bytes from %d to %d", n, from, to)
				same(t, what+": to the device", r.read(s, a, size), modelA)
				same(t, what+": within the device", r.read(s, b, size), modelB)

				expect := append([]byte(nil), host...)
				copy(expect[to:to+n], modelB[from:])
				r.ok(s.ToHost(host[to:to+n], b+accel.Address(from)))
				r.ok(s.Sync())
				same(t, what+": to the host", host, expect)
			}
		}
	}
}

// testNothing checks that empty copies do nothing.
func testNothing(t *testing.T, dev accel.Device) {
	r := rig{t, dev}
	a := r.alloc(10)
	s := r.stream()
	for _, err := range []error{
		s.ToHost(nil, a), s.ToHost([]byte{}, a+10), s.ToDevice(a, nil), s.ToDevice(0, nil), s.Within(a, a, 0), s.Within(0, 0, 0), s.Sync(),
	} {
		r.ok(err)
	}
}

// testScript queues long random sequences of copies that read each other's results, without
// waiting, and compares with the same copies done in order.
func testScript(t *testing.T, dev accel.Device) {
	const size, places, steps = 40_000, 4, 300
	r := rig{t, dev}
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 7))
		var device [places]accel.Address
		var host [places][]byte
		var modelDevice, modelHost [places][]byte
		for i := range places {
			device[i], host[i] = r.alloc(size), noise(seed*100+uint64(i), r.pin(size))
			modelDevice[i], modelHost[i] = noise(seed*100+50+uint64(i), make([]byte, size)), append([]byte(nil), host[i]...)
		}
		s := r.stream()
		for i := range places {
			r.ok(s.ToDevice(device[i], modelDevice[i])) // not pinned: done when it returns
		}
		for range steps {
			n := random.IntN(size) + 1
			x, y := random.IntN(size-n+1), random.IntN(size-n+1)
			i, j := random.IntN(places), random.IntN(places)
			switch random.IntN(3) {
			case 0:
				r.ok(s.ToDevice(device[i]+accel.Address(x), host[j][y:y+n]))
				copy(modelDevice[i][x:], modelHost[j][y:y+n])
			case 1:
				r.ok(s.ToHost(host[j][y:y+n], device[i]+accel.Address(x)))
				copy(modelHost[j][y:], modelDevice[i][x:x+n])
			case 2:
				if i == j { // a copy must not overlap itself
					j = (j + 1) % places
				}
				r.ok(s.Within(device[i]+accel.Address(x), device[j]+accel.Address(y), n))
				copy(modelDevice[i][x:], modelDevice[j][y:y+n])
			}
		}
		r.ok(s.Sync())
		for i := range places {
			same(t, fmt.Sprintf("seed %d: host memory %d", seed, i), host[i], modelHost[i])
			same(t, fmt.Sprintf("seed %d: device memory %d", seed, i), r.read(s, device[i], size), modelDevice[i])
		}
	}
}

// testScriptPageable alternates copies of pinned and of other memory.
func testScriptPageable(t *testing.T, dev accel.Device) {
	const size = 70_000
	r := rig{t, dev}
	a, b := r.alloc(size), r.alloc(size)
	pin, heap := r.pin(size), make([]byte, size)
	s := r.stream()
	for seed := range uint64(10) {
		noise(seed, pin)
		r.ok(s.ToDevice(a, pin))
		r.ok(s.Within(b, a, size))
		r.ok(s.ToHost(heap, b)) // done when it returns
		r.ok(s.Sync())
		same(t, "by way of the device", heap, pin)
		noise(seed+1000, heap)
		r.ok(s.ToDevice(a, heap))
		r.ok(s.Within(b, a, size))
		r.ok(s.ToHost(pin, b))
		r.ok(s.Sync())
		same(t, "and back", pin, heap)
	}
}

// testPageable checks that a copy of memory that is not pinned is done when the call returns, so
// that the memory can be used at once.
func testPageable(t *testing.T, dev accel.Device) {
	r := rig{t, dev}
	const n = 3<<20 + 1
	a := r.alloc(n)
	host, expect := make([]byte, n), make([]byte, n)
	s := r.stream()
	for seed := range uint64(3) {
		noise(seed, host)
		r.ok(s.ToDevice(a, host))
		clear(host)
		r.ok(s.ToHost(host, a))
		same(t, "at once", host, noise(seed, expect))
	}
}
