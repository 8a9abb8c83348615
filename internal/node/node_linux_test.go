package node

import (
	"fmt"
	"os"
	"testing"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

// A process is taken for a rank's only if its proof was read.
func TestReadProof(t *testing.T) {
	var own rankArea
	own.fill()
	if err := own.readProof(make([]byte, 16)); err != nil {
		t.Skipf("the kernel lets this process not read its own memory: %v", err)
	}
	for what, change := range map[string]func(a *rankArea){
		"another proof":   func(a *rankArea) { a.proof[15]++ },
		"no such memory":  func(a *rankArea) { a.proofAt.Store(0x0101010101010101) },
		"no such process": func(a *rankArea) { a.pid.Store(0x40000000) },
		"a negative one":  func(a *rankArea) { a.pid.Store(-1) },
		"nothing":         func(a *rankArea) { a.pid.Store(0) },
	} {
		var a rankArea
		a.fill()
		change(&a)
		if a.readProof(make([]byte, 16)) == nil {
			t.Errorf("%s: the proof was read", what)
		}
	}
}

// Only the processes that are known as the ranks may join.
func TestOtherProcessCannotJoin(t *testing.T) {
	cfg := Config{Name: t.Name() + string(proof()), Ranks: []int{4, 7}, PIDs: []int{os.Getpid(), os.Getpid() + 1}}
	from, to := sockets(t)
	defer from.Close()
	defer to.Close()
	say := func() { send(from, yes, fmt.Sprintf(hello, 1, 2, os.Getpid())) }
	say()
	if _, _, err := readHello(t.Context(), to, &cfg); err == nil {
		t.Error("this process is taken for another")
	}
	cfg.PIDs[1] = os.Getpid()
	say()
	if rank, _, err := readHello(t.Context(), to, &cfg); rank != 1 || err != nil {
		t.Errorf("this process is rank %d, %v; want 1", rank, err)
	}
}

// A rank that sleeps is woken by every rank with news, and one that is awake by none.
func TestWake(t *testing.T) {
	seg, err := shmem.Create("test", 2*page)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	rings := 0
	n := &Node{areas: []*rankArea{area(seg, layout{}, 0)}, bell: func(int) { rings++ }}
	for range 2 {
		n.Wake(0)
		n.Begin()
		n.Wake(0)
		n.Wake(0)
		n.End()
	}
	if n.Wake(0); rings != 4 {
		t.Errorf("%d rings, want two for each of two sleeps", rings)
	}
	n.bell = nil
	n.Begin()
	n.Wake(0)
	n.Sleep(0) // returns
	n.End()
}
