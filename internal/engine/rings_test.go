//go:build linux

package engine

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// The rings of two ranks are made with their first message.

// A rank that has no memory for rings gets the notices of another one, and is not lost.
func TestNoticesNeedNoMemory(t *testing.T) {
	c, o := withOther(t, os.Getpid(), time.Hour)
	o.full = &backend.Fault{Sentinel: backend.ErrAlloc}
	for id := range 100 {
		d, err := c.Derive([]int{0, 1}, uint32(1+id))
		if err != nil {
			t.Fatal(err)
		}
		d.Break(&backend.Fault{Sentinel: backend.ErrCanceled, Text: "because of the test"})
		d.Close()
		c.Poll()
		o.read(t)
	}
	o.full = nil
	if err := c.Send(patient, make([]byte, 8), 1, 1, backend.Standard); err != nil {
		t.Errorf("a message, when there is memory: %v", err)
	}
	if o.read(t); len(o.kinds) != 301 || o.kinds[0] != frame.Broken || o.kinds[299] != frame.Closed { // Close repeats the break
		t.Errorf("%v have arrived", o.kinds)
	}
}

// A message for which there is no memory fails, and a later one does not.
func TestFirstMessageWithoutMemoryIsErrAlloc(t *testing.T) {
	c, o := withOther(t, os.Getpid(), time.Hour)
	for _, n := range []int{8, ringData} {
		o.full = &backend.Fault{Sentinel: backend.ErrAlloc}
		if err := c.Send(patient, make([]byte, n), 1, 1, backend.Standard); !errors.Is(err, backend.ErrAlloc) {
			t.Errorf("a message of %d bytes: %v, want ErrAlloc", n, err)
		}
	}
	o.full = nil
	if err := c.Send(patient, make([]byte, 8), 1, 1, backend.Standard); err != nil {
		t.Error(err)
	}
	if o.read(t); len(o.kinds) != 1 {
		t.Errorf("%v have arrived, want one message", o.kinds)
	}
}
