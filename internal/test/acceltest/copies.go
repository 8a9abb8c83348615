package acceltest

import (
	"fmt"
	"math/rand/v2"

	"github.com/cohort-hpc/cohort/internal/accel"
)

// testNothing checks that empty copies do nothing.
func testNothing(r rig) {
	a := r.alloc(10)
	s := r.stream()
	for _, err := range []error{
		s.ToHost(nil, a), s.ToHost([]byte{}, a+10), s.ToDevice(a, nil), s.ToDevice(0, nil), s.Within(a, a, 0), s.Within(0, 0, 0), s.Sync(),
	} {
		r.ok(err)
	}
}

// testScript queues long random sequences of copies from and to unaligned addresses, which read each other's results,
// without waiting. It compares with the same copies done in order.
func testScript(r rig) {
	const size, places, steps = 40_000, 4, 300
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
			n := random.IntN([]int{size, 300}[random.IntN(2)]) + 1
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
			same(r, fmt.Sprintf("seed %d: host memory %d", seed, i), host[i], modelHost[i])
			same(r, fmt.Sprintf("seed %d: device memory %d", seed, i), r.read(s, device[i], size), modelDevice[i])
		}
	}
}

// testPageable alternates copies of pinned memory and of other memory, which can be used when the call returns.
func testPageable(r rig) {
	const size = 3<<20 + 1
	a, b := r.alloc(size), r.alloc(size)
	pin, heap, expect := r.pin(size), make([]byte, size), make([]byte, size)
	s := r.stream()
	for seed := range uint64(6) {
		noise(seed, pin)
		r.ok(s.ToDevice(a, pin))
		r.ok(s.Within(b, a, size))
		r.ok(s.ToHost(heap, b))
		same(r, "at once", heap, pin)
		noise(seed+1000, heap)
		r.ok(s.ToDevice(a, heap))
		clear(heap)
		r.ok(s.Within(b, a, size))
		r.ok(s.ToHost(pin, b))
		r.ok(s.Sync())
		same(r, "and back", pin, noise(seed+1000, expect))
	}
}
