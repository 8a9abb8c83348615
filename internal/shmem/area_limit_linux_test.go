package shmem

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAddressSpaceLimited closes more areas than a limited address space has room
// for: what closed ones keep of it gives way.
func TestAddressSpaceLimited(t *testing.T) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var pages uint64
	if _, err := fmt.Sscan(string(b), &pages); err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &old); err != nil {
		t.Fatal(err)
	}
	const room, size = 512 << 20, 128 << 20 // 2*room is an int on 32 bits too
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: pages*uint64(PageSize) + room, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_AS, &old)
	for i := range 4 * room / size {
		a, err := Anonymous(size)
		if err != nil {
			t.Fatalf("area %d: %v", i, err)
		}
		a[size-1] = 1
		if err := Unmap(a); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := Anonymous(2 * room); err == nil {
		Unmap(a)
		t.Error("there was room for more than the limit")
	}
}
