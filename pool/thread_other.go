//go:build !linux

package pool

import (
	"bytes"
	"errors"
	"runtime"
	"strconv"
	"sync"

	"github.com/cohort-hpc/cohort/internal/word"
)

const (
	canPin  = false
	maxCPUs = 8192
)

// bell lets a thread sleep while a word is 1.
type bell struct{ *word.Parker }

func (b *bell) prepare() {
	if b.Parker == nil {
		b.Parker = word.NewParker()
	}
}

func (b *bell) wait(*word.Uint32) { b.Park(0) }
func (b *bell) ring(*word.Uint32) { b.Unpark() }

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
