//go:build pmix && linux && (amd64 || arm64)

package pmi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// library is libpmix, from 2.0 on: PMIx Standard 4.1, chapters 5 to 7, and the layout of pmix_common.h. A program that
// is built with the tag pmix needs the dynamic linker and the C library, but not cgo.
var library struct {
	once sync.Once
	err  error

	init      func(self *process, all *info, n uintptr) int32
	put       func(scope uint8, key string, v *textValue) int32
	commit    func() int32
	fence     func(of *process, n uintptr, all *info, infos uintptr) int32
	getText   func(of *process, key string, all *info, infos uintptr, v **textValue) int32
	getNumber func(of *process, key string, all *info, infos uintptr, v **value) int32
	finalize  func(all *info, n uintptr) int32
	text      func(status int32) string
}

// A process is a pmix_proc_t.
type process struct {
	space [256]byte
	rank  uint32
}

// A value is a pmix_value_t with a number.
type value struct {
	kind uint16
	data uint64
	rest [2]uint64
}

// A textValue is a pmix_value_t with a text, which ends with a 0. It is in C's memory, or pinned.
type textValue struct {
	kind uint16
	text *byte
	rest [2]uint64
}

// An info is a pmix_info_t.
type info struct {
	key   [512]byte
	flags uint32
	value value
}

// Constants of pmix_common.h.
const (
	wildcard   = 1<<32 - 2 // PMIX_RANK_WILDCARD
	global     = 3         // PMIX_GLOBAL
	kindBool   = 1         // PMIX_BOOL
	kindString = 3         // PMIX_STRING
	kindUint32 = 14        // PMIX_UINT32
)

// loadPMIx loads libpmix, once.
func loadPMIx() error {
	l := &library
	l.once.Do(func() {
		handle, err := purego.Dlopen("libpmix.so.2", purego.RTLD_NOW|purego.RTLD_LOCAL)
		for _, f := range []struct {
			name string
			f    any
		}{
			{"PMIx_Init", &l.init}, {"PMIx_Put", &l.put}, {"PMIx_Commit", &l.commit}, {"PMIx_Fence", &l.fence}, {"PMIx_Get", &l.getText},
			{"PMIx_Get", &l.getNumber}, {"PMIx_Finalize", &l.finalize}, {"PMIx_Error_string", &l.text},
		} {
			var at uintptr
			if err == nil {
				if at, err = purego.Dlsym(handle, f.name); err == nil {
					purego.RegisterFunc(f.f, at)
				}
			}
		}
		l.err = err
	})
	return l.err
}

// store is a Space by libpmix.
type store struct {
	self process
	size int
}

func openPMIx(ctx context.Context) (Space, error) {
	s := new(store)
	if err := s.call(ctx, "PMIx_Init", func() int32 { return library.init(&s.self, nil, 0) }); err != nil {
		return nil, err
	}
	of, v := process{s.self.space, wildcard}, new(*value)
	err := s.call(ctx, "PMIx_Get", func() int32 { return library.getNumber(&of, "pmix.job.size", nil, 0, v) })
	if err == nil {
		err = isKind((*v).kind, kindUint32)
	}
	if err == nil {
		s.size = int(uint32((*v).data))
		_, _, err = place(fmt.Sprint(s.self.rank), fmt.Sprint(s.size))
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *store) Rank() int   { return int(s.self.rank) }
func (s *store) Size() int   { return s.size }
func (s *store) Job() string { return unix.ByteSliceToString(s.self.space[:]) }

func (s *store) Put(ctx context.Context, key, text string) error {
	return s.call(ctx, "PMIx_Put", func() int32 {
		b := append([]byte(text), 0)
		var pin runtime.Pinner
		pin.Pin(&b[0])
		defer pin.Unpin()
		if status := library.put(global, key, &textValue{kind: kindString, text: &b[0]}); status != 0 { // it copies the text
			return status
		}
		return library.commit()
	})
}

func (s *store) Fence(ctx context.Context) error {
	all := &info{value: value{kind: kindBool, data: 1}}
	copy(all.key[:], "pmix.collect")
	return s.call(ctx, "PMIx_Fence", func() int32 { return library.fence(nil, 0, all, 1) })
}

func (s *store) Get(ctx context.Context, owner int, key string) (string, error) {
	of, v := process{s.self.space, uint32(owner)}, new(*textValue)
	err := s.call(ctx, "PMIx_Get", func() int32 { return library.getText(&of, key, nil, 0, v) })
	if err == nil {
		err = isKind((*v).kind, kindString)
	}
	if err != nil {
		return "", err
	}
	return unix.BytePtrToString((*v).text), nil // its memory is never freed: ranks get one value
}

func isKind(kind, want uint16) error {
	if kind != want {
		return fmt.Errorf("the launcher has a value of type %d, want %d", kind, want)
	}
	return nil
}

func (s *store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	return s.call(ctx, "PMIx_Finalize", func() int32 { return library.finalize(nil, 0) })
}

// call calls a function of libpmix, which has no deadline. When ctx ends first, the function is left behind.
func (s *store) call(ctx context.Context, name string, f func() int32) error {
	done := make(chan int32, 1)
	go func() { done <- f() }()
	select {
	case status := <-done:
		if status != 0 {
			return fmt.Errorf("%s: %s (%d)", name, library.text(status), status)
		}
		return nil
	case <-ctx.Done():
		if name == "PMIx_Fence" {
			return errors.New("not all ranks came to the launcher's barrier in time")
		}
		return fmt.Errorf("the launcher did not answer %s in time", name)
	}
}
