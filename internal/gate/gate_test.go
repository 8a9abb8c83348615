package gate

import (
	"math"
	"testing"
	"time"
)

func TestShutGateLetsNobodyIn(t *testing.T) {
	var g Gate
	if !g.Enter() {
		t.Fatal("an open gate lets nobody in")
	}
	if !g.Shut() {
		t.Fatal("the first Shut is not the first")
	}
	if g.Shut() || g.Enter() {
		t.Fatal("a gate can be shut twice, or entered when shut")
	}
	if g.AwaitEmpty(time.Millisecond) {
		t.Fatal("a gate is empty with somebody inside")
	}
	empty := make(chan bool)
	go func() { empty <- g.AwaitEmpty(0) }()
	g.Stay()
	g.Leave()
	g.Leave()
	if !<-empty {
		t.Fatal("AwaitEmpty without a limit returns false")
	}
}

// The tally takes neither from those inside nor from them to it, also below 0 and beyond 2^31.
func TestTallyIsApartFromTheCount(t *testing.T) {
	var g Tallied
	for i := range 3 {
		g.Enter()
		g.Enter()
		g.LeaveWith(-2)
		g.Count(1)
		if want := int32(-1 - i); g.Tally() != want {
			t.Fatalf("the tally is %d, want %d", g.Tally(), want)
		}
	}
	for range 3 {
		g.Leave()
	}
	g.Count(math.MinInt32)
	g.Count(math.MinInt32)
	if g.Tally() != -3 || g.IsShut() || g.Empty() {
		t.Fatalf("tally %d, shut %v", g.Tally(), g.IsShut())
	}
	if g.Shut(); !g.Empty() || g.Tally() != -3 {
		t.Fatalf("empty %v, tally %d", g.Empty(), g.Tally())
	}
}

func BenchmarkEnterLeave(b *testing.B) {
	var g Gate
	for b.Loop() {
		g.Enter()
		g.Leave()
	}
}
