//go:build linux || darwin

package tcp

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/wire"
)

type flag struct{ set atomic.Bool }

func (f *flag) Ready() bool { return f.set.Load() }

// TestNotifyWakes checks that who waits for something that a Notify makes ready is woken after it: the
// completion of the request has woken them before, and they may sleep again by then.
func TestNotifyWakes(t *testing.T) {
	a, b := pair(t)
	defer b.Close()
	fd, err := takeSocket(a)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newEngine(0, []peer{{}, {node: 1}}, []conn{{fd: -1}, {fd: fd, enc: &wire.Encoder{}, dec: &wire.Decoder{}}}, false, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	e := w.(*comm).e
	asleep := func() {
		for !e.sleeping.Load() {
			runtime.Gosched()
		}
	}
	var done flag
	q := &backend.Request{Notify: func(*backend.Request) {
		asleep()
		done.set.Store(true)
	}}
	q.Begin()
	w.Irecv(q, nil, 1, 1)
	waited := make(chan error)
	go func() { waited <- w.Await(&backend.Bound{Timeout: time.Minute}, &done) }()
	asleep()
	if !w.Cancel(q) {
		t.Error("a receive that has not matched was not taken back")
	}
	if e.sleeping.Load() {
		t.Error("the waiter has not been woken")
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
}
