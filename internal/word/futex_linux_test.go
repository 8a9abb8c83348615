package word

import (
	"testing"
	"time"
)

func TestFutex(t *testing.T) {
	word := new(Uint32)
	FutexWait(word, 1, 0) // the value is another one: no sleep
	begin := time.Now()
	FutexWait(word, 0, 20*time.Millisecond)
	if d := time.Since(begin); d < 10*time.Millisecond {
		t.Errorf("a sleep of 20 ms ended after %v", d)
	}
	done := make(chan struct{})
	go func() {
		for word.Load() == 0 {
			FutexWait(word, 0, 0)
		}
		close(done)
	}()
	word.Store(1)
	FutexWake(word, 1)
	<-done
}
