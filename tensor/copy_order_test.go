package tensor

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
	"github.com/cohort-hpc/cohort/internal/view"
)

// launch puts a function of a tensor's elements into the tensor's stream.
func launch(t *testing.T, x *Tensor[int32], f func(data []int32)) {
	t.Helper()
	err := x.stream.(*soft.Stream).Do(func(mem func(accel.Address, int) []byte) { f(view.Of[int32](mem(x.at, x.size()))) })
	if err != nil {
		t.Fatal(err)
	}
}

// onStream returns a tensor on a device, bound to its own stream.
func onStream(t *testing.T, d *Device, n int) *Tensor[int32] {
	t.Helper()
	s := must.Get(d.NewStream())
	t.Cleanup(func() { _ = s.Close() })
	x := must.Get(newOn[int32](t, d, n).On(s))
	return x
}

// A copy reads what earlier kernels in the source's stream wrote, and waits for earlier kernels in
// the destination's stream, in whatever order the device runs its work.
func TestCopyFollowsStreamOrder(t *testing.T) {
	const n = 150000 // three pieces of pinned memory
	for name, c := range map[string]soft.Config{
		"lazy1": {Devices: 2, Lazy: true, Seed: 1}, "lazy2": {Devices: 2, Lazy: true, Seed: 2}, "lazy3": {Devices: 2, Lazy: true, Seed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			devs, _ := softDevices(t, c)
			write := func(x *Tensor[int32]) {
				launch(t, x, func(data []int32) {
					for i := range data {
						data[i] = int32(i) - 7
					}
				})
			}
			want := counting[int32](n)
			for i := range want {
				want[i] -= 7
			}
			host := must.Get(New[int32](n))
			x := onStream(t, devs[0], n)
			write(x)
			if err := Copy(host, x); err != nil || !slices.Equal(host.Data(), want) {
				t.Errorf("to the processor it copied what the kernel had not written yet, %v", err)
			}
			for what, y := range map[string]*Tensor[int32]{
				"in another stream": onStream(t, devs[0], n), "in the default stream": newOn[int32](t, devs[0], n), "on another device": onStream(t, devs[1], n),
			} {
				src := onStream(t, devs[0], n)
				var old []int32
				launch(t, y, func(data []int32) { old = slices.Clone(data) })
				write(src)
				if err := Copy(y, src); err != nil {
					t.Fatal(err)
				}
				if got := looked(t, y); !slices.Equal(got, want) {
					t.Errorf("%s: the copy is not what the kernel wrote", what)
				}
				if len(old) != n || slices.Equal(old, want) {
					t.Errorf("%s: the kernel before the copy has read what the copy wrote", what)
				}
			}
			y := onStream(t, devs[1], n)
			launch(t, y, func(data []int32) { clear(data) })
			if err := Copy(y, host); err != nil {
				t.Fatal(err)
			}
			launch(t, y, func(data []int32) { // later work sees the copy
				for i := range data {
					data[i]++
				}
			})
			if err := Copy(host, y); err != nil || host.Data()[0] != -6 || host.Data()[n-1] != n-7 {
				t.Errorf("around a copy from the processor kernels are not in order: %v, %v, %v", host.Data()[0], host.Data()[n-1], err)
			}
		})
	}
}

// If any call of the driver fails, Copy returns the error, frees everything, and frees nothing that
// a copy still uses. If the device still works, the next Copy is right.
func TestCopyReleasesMemoryOnDriverErrors(t *testing.T) {
	const n = 135000 // three pieces of pinned memory
	most := 3
	if testing.Short() {
		most = 2
	}
	ops := []soft.Op{soft.Pin, soft.NewEvent, soft.Copy, soft.Record, soft.Follow, soft.EventSync, soft.Sync, soft.Alloc, soft.Free, soft.Run}
	for _, direction := range []string{"up", "down", "within", "across", "overlap"} {
		failed := 0
		for _, op := range ops {
			for nth := 1; nth <= most; nth++ {
				t.Run(fmt.Sprintf("%s/%s/%d", direction, op, nth), func(t *testing.T) {
					// Lazy, so that memory freed too early is still in use.
					devs, driver := softDevices(t, soft.Config{Devices: 2, Lazy: true, Seed: uint64(nth)})
					want := counting[int32](n)
					host := must.Get(Of(slices.Clone(want), n))
					x := onStream(t, devs[0], n+1000)
					all := must.Get(x.Sub(0, 0, n))
					if err := Copy(all, host); err != nil {
						t.Fatal(err)
					}
					clear(host.Data())
					dst, src := host, all
					switch direction {
					case "up":
						dst, src = newOn[int32](t, devs[0], n), host
						copy(host.Data(), want)
					case "within":
						dst = onStream(t, devs[0], n)
					case "across":
						dst = onStream(t, devs[1], n)
					case "overlap":
						dst = must.Get(x.Sub(0, 1000, n+1000))
					}
					for _, d := range devs {
						d.Trim() // so that everything is made again
					}
					before := driver.Stats().Allocations
					reached := false
					broken := errors.New("on purpose")
					driver.SetFail(func(c soft.Call) error {
						if c.Op == op && c.Nth == nth {
							reached = true
							return broken
						}
						return nil
					})
					err := Copy(dst, src)
					driver.SetFail(nil)
					// Pinning succeeds at the second attempt if the first frees unused memory.
					if reached && op != soft.Pin && op != soft.Sync && !errors.Is(err, broken) || !reached && err != nil {
						t.Fatalf("the failure was reached: %v, but Copy returned %v", reached, err)
					}
					if err != nil {
						failed++
					}
					if now := driver.Stats(); now.Allocations != before || now.Work != 0 {
						t.Errorf("%d allocations and %d pieces of work are left", now.Allocations-before, now.Work)
					}
					if op == soft.Run || op == soft.Free && err != nil {
						return // the device is broken, or the data have moved
					}
					if direction == "overlap" {
						if err := Copy(all, of(want, []int{len(want)})); err != nil {
							t.Fatal(err)
						}
					}
					if err := Copy(dst, src); err != nil {
						t.Errorf("the next Copy: %v", err)
					} else if got := inHost(t, dst); !slices.Equal(got, want) {
						t.Error("the next Copy is not right")
					}
				})
			}
		}
		if failed < 6 {
			t.Errorf("%s: only %d copies have failed", direction, failed)
		}
	}
}

// If memory is missing, the error says so and nothing is left behind.
func TestToReportsMissingMemory(t *testing.T) {
	devs, driver := softDevices(t, soft.Config{Memory: 1 << 20})
	x := must.Get(New[float64](3<<15, 2))
	if _, err := x.To(devs[0]); !errors.Is(err, cohort.ErrAlloc) {
		t.Errorf("more than there is: %v", err)
	}
	y := newOn[float64](t, devs[0], 3<<13, 3)
	part := must.Get(y.Sub(1, 0, 2))
	other := newOn[float64](t, devs[0], 3<<13)
	if _, err := part.Compact(); !errors.Is(err, cohort.ErrAlloc) {
		t.Errorf("no room for a contiguous copy: %v", err)
	}
	shifted := must.Get(y.Sub(1, 1, 3))
	if err := Copy(part, shifted); !errors.Is(err, cohort.ErrAlloc) {
		t.Errorf("no room for what overlaps: %v", err)
	}
	if n := driver.Stats().Allocations; n != 2 {
		t.Errorf("there are %d allocations, want 2", n)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}
