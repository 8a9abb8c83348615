//go:build !linux

package pool

import (
	"bytes"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	canPin  = false
	maxCPUs = 8192
)

// parker lets one thread sleep until others wake it.
type parker struct {
	word atomic.Uint32
	bell chan struct{}
}

func (k *parker) announce() {
	if k.bell == nil {
		k.bell = make(chan struct{}, 1)
	}
	k.word.Store(1)
}

func (k *parker) withdraw() bool {
	if k.word.CompareAndSwap(1, 0) {
		return true
	}
	<-k.bell // already on its way
	return false
}

func (k *parker) sleep() { <-k.bell }

func (k *parker) asleep() bool { return k.word.Load() == 1 }

func (k *parker) wake() bool {
	if !k.asleep() || !k.word.CompareAndSwap(1, 0) {
		return false
	}
	k.bell <- struct{}{}
	return true
}

// identity is the number of a goroutine.
type identity int

var stacks = sync.Pool{New: func() any { return new([64]byte) }}

// self reads the number from the first line of the stack, "goroutine 17 [running]:".
func self() identity {
	b := stacks.Get().(*[64]byte)
	defer stacks.Put(b)
	text := b[:runtime.Stack(b[:], false)]
	text = bytes.TrimPrefix(text, []byte("goroutine "))
	number, _, _ := bytes.Cut(text, []byte(" "))
	n, _ := strconv.Atoi(string(number))
	return identity(n)
}

func onMainThread() bool { return false }

func nameThread(string) {}

func pin([]int) error { return errors.New("this system cannot pin threads") }

func localMemory() error { return nil }
