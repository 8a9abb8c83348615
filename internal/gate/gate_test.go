package gate

import (
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
	g.Leave()
	if !<-empty {
		t.Fatal("AwaitEmpty without a limit returns false")
	}
}

func BenchmarkEnterLeave(b *testing.B) {
	var g Gate
	for b.Loop() {
		g.Enter()
		g.Leave()
	}
}
