//go:build linux

package memlink

import (
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/frame"
)

// TestPaceFollowsCopySpeed injects how long the receiver's copies out of the data ring take.
func TestPaceFollowsCopySpeed(t *testing.T) {
	a, b := pair(t, Config{Data: 1 << 20, Copies: true, Spare: true})
	now, took, measured := time.Time{}, time.Duration(0), 0
	a.pace.now = func() time.Time { return time.Time{} } // writing takes no time
	b.pace.now = func() time.Time {
		now = now.Add(took)
		measured++
		return now
	}
	eager := func(times, n int) {
		for range times {
			write(t, a, b, frame.Header{Kind: frame.Eager, Length: uint64(n)}, make([]byte, n))
			readAll(t, b)
		}
	}
	long := 1 << 20
	expect := func(what string, want bool) {
		t.Helper()
		if got := a.ChooseCopy(long); got != want {
			t.Fatalf("%s: the kernel copies: %v, want %v", what, got, want)
		}
		readAll(t, b) // a probe
	}
	at := func(perKiB time.Duration) time.Duration { return perKiB*pieceMax/1024 + clockTakes }
	expect("at first", false)
	took = at(copyPerKiB)
	eager(20*measureEvery, pieceMax)
	expect("after pieces as fast as the kernel", false)
	took = at(100 * copyPerKiB)
	eager(measureEvery-1, pieceMax)
	expect("before the next measured piece", false)
	eager(100, measureMin-1)
	expect("short pieces do not count", false)
	took = at(copyPerKiB / 2)
	eager(20*measureEvery, pieceMax)
	took = at(100 * copyPerKiB)
	eager(measureEvery, pieceMax)
	expect("after one interrupt", false)
	took = at(4 * copyPerKiB)
	eager(3*measureEvery, pieceMax)
	expect("after slow pieces", true)
	if a.ChooseCopy(CopyMin) != true || a.ChooseCopy(CopyMin-1) != false {
		t.Errorf("messages of %d and %d bytes are copied: %v, %v", CopyMin, CopyMin-1, a.ChooseCopy(CopyMin), a.ChooseCopy(CopyMin-1))
	}

	before := measured
	for range 2 * probeEvery { // with slow probes
		expect("while the probes are slow", true)
	}
	if probes := (measured - before) / 2; probes != 2 {
		t.Errorf("%d probes for %d transfers, want one in %d", probes, 2*probeEvery, probeEvery)
	}
	took = copyPerKiB * probeSize / 1024 / 2
	for i := 0; a.ChooseCopy(long); i++ {
		if i > probeEvery {
			t.Fatal("a fast probe does not end the copies")
		}
		readAll(t, b)
	}
	expect("after a fast probe", false)
	took = at(2 * copyPerKiB)
	eager(measureEvery, pieceMax)
	expect("after a slow piece that follows a fast probe", true)
	for _, f := range b.frames {
		if f.Kind != frame.Eager {
			t.Errorf("%v has arrived", f.Kind)
		}
	}
}

// The sender sees by itself that it writes slowly into the ring.
func TestSlowWritesGoOverToCopies(t *testing.T) {
	a, b := pair(t, Config{Data: 1 << 20, Copies: true, Spare: true})
	now, took := time.Time{}, time.Duration(0)
	a.pace.now = func() time.Time { now = now.Add(took); return now }
	b.pace.now = func() time.Time { return time.Time{} }
	eager := func(times int) {
		for range times {
			write(t, a, b, frame.Header{Kind: frame.Eager, Length: pieceMax}, make([]byte, pieceMax))
			readAll(t, b)
		}
	}
	expect := func(what string, want bool) {
		t.Helper()
		if got := a.ChooseCopy(1 << 20); got != want {
			t.Fatalf("%s: the kernel copies: %v, want %v", what, got, want)
		}
		readAll(t, b)
	}
	took = copyPerKiB * pieceMax / 1024
	eager(20 * measureEvery)
	if a.ChooseCopy(4<<20) || !a.ChooseCopy(timedMin) {
		t.Error("pieces as fast as the kernel: a message of two pieces is to be copied, and none of many")
	}
	took *= 4
	eager(3 * measureEvery)
	for range 2 * probeEvery {
		expect("after slow pieces, with slow probes", true)
	}
	took = copyPerKiB * probeSize / 4 / 1024
	for range probeEvery {
		a.ChooseCopy(1 << 20)
		readAll(t, b)
	}
	expect("after a fast probe", false)
}

// TestPaceFollowsKernel makes the kernel's copies slow: pieces that take a little less are fast then.
func TestPaceFollowsKernel(t *testing.T) {
	a, b := pair(t, Config{Data: 1 << 20, Copies: true, Spare: true})
	now := time.Time{}
	perKiB := 4 * copyPerKiB
	b.pace.now = func() time.Time { return now }
	transfer := func(n int) {
		started(t, a, b, make([]byte, n), make([]byte, n))
		now = now.Add(perKiB * time.Duration(n) / 1024)
		for as, bs := newCompleter(), newCompleter(); len(as.sent) == 0; {
			step(t, b, bs)
			step(t, a, as)
		}
	}
	slow := func(perKiB time.Duration) bool {
		b.pace.now = func() time.Time { now = now.Add(perKiB * pieceMax / 1024); return now }
		defer func() { b.pace.now = func() time.Time { return now } }()
		b.pace.read = gauge{}
		for range 20 {
			b.measure(&b.pace.read, pieceMax, func() {})
		}
		return b.pace.read.average > b.pace.perKiB
	}
	for range 40 {
		transfer(timedMin - 1)
	}
	if !slow(3 * copyPerKiB) {
		t.Error("short transfers are measured")
	}
	for range 40 {
		transfer(timedMin)
	}
	if slow(3 * copyPerKiB) {
		t.Error("pieces that take less than the kernel's copies are slow")
	}
	perKiB *= 1000
	transfer(timedMin)
	if !slow(6 * copyPerKiB) {
		t.Error("one transfer that was interrupted makes slow pieces fast")
	}
}

func TestProbeNeedsRoom(t *testing.T) {
	a, b := pair(t, Config{Data: 4 * probeSize, Copies: true, Spare: true})
	b.Link.in.r.slow.Store(1)
	for range cells {
		a.Write(&frame.Header{Kind: frame.Heartbeat}, nil, 0)
	}
	for range 2 * measureEvery {
		if !a.ChooseCopy(CopyMin) {
			t.Fatal("the kernel does not copy")
		}
	}
	readAll(t, b)
	if len(b.frames) != cells {
		t.Errorf("%d frames have arrived, want %d", len(b.frames), cells)
	}
}

func TestCopiesDependOnConfig(t *testing.T) {
	for _, c := range []struct {
		copies, spare, slow, want bool
	}{
		{false, false, true, false},
		{false, true, true, false},
		{true, false, false, true}, // one rank copies while the other does not run
		{true, true, false, false},
		{true, true, true, true},
	} {
		a, b := pair(t, Config{Data: 4096, Copies: c.copies, Spare: c.spare})
		b.pace.now = func() time.Time { t.Error("measured without need"); return time.Time{} }
		if c.slow {
			b.Link.in.r.slow.Store(1)
		}
		if got := a.ChooseCopy(CopyMin); got != c.want || a.ChooseCopy(CopyMin-1) {
			t.Errorf("%+v: the kernel copies: %v; short messages: %v", c, got, a.ChooseCopy(CopyMin-1))
		}
		if !c.copies || !c.spare {
			write(t, a, b, frame.Header{Kind: frame.Data, Length: 1 << 16}, make([]byte, 1<<16))
			readAll(t, b)
		}
	}
}
