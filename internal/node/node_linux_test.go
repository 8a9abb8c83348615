package node

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Only the processes that are known as the ranks may join.
func TestOtherProcessCannotJoin(t *testing.T) {
	cfg := Config{Name: t.Name() + rand.Text(), Ranks: []int{4, 7}, PIDs: []int{os.Getpid(), os.Getpid() + 1}}
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

// A rank has the pages of its own rings mapped, and not those of the rings of all pairs.
func TestRankMapsOwnRingsOnly(t *testing.T) {
	const ranks = 40
	cfg := Config{Ranks: upTo(ranks)}
	l := newLayout(&cfg)
	seg, err := create(&cfg, l)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	for r, n := 1, newNode(&cfg, seg, l); r < ranks; r++ {
		n.Link(r)
	}
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, entry, _ := strings.Cut(string(b), "memfd:cohort-node")
	_, entry, _ = strings.Cut(entry, "Rss:")
	var kib int
	if _, err := fmt.Sscan(entry, &kib); err != nil {
		t.Fatal(err)
	}
	least, most := (ranks-1)*l.pairSize(), l.rings+(ranks+1)*l.pairSize()
	if kib<<10 < least || kib<<10 > most {
		t.Errorf("%d KiB are mapped, want %d to %d", kib, least>>10, most>>10)
	}
	t.Logf("%d ranks: %d KiB of %d are mapped", ranks, kib, l.start>>10)
}
