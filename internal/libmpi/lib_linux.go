//go:build cgo

package libmpi

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "load.h"
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// Library describes the loaded library.
type Library struct {
	Path         string // the file
	ABI          ABI
	Version      string // the level of the standard, such as "4.0"
	Text         string // the whole text of MPI_Get_library_version
	Major, Minor int    // Version as numbers
}

// Name returns the library's name and version in one line.
func (l *Library) Name() string {
	line, _, _ := strings.Cut(l.Text, "\n")
	line, _, _ = strings.Cut(line, ",")
	line = strings.Replace(line, "MPICH Version:", "MPICH", 1)
	return strings.Join(strings.Fields(strings.Trim(line, "\x00")), " ")
}

var (
	loading sync.Mutex
	loaded  *Library
)

// ErrLoaded reports that another library is loaded already.
var ErrLoaded = errors.New("another MPI library is loaded already")

// Present reports whether the process has an MPI library that Open did not load: one that is linked
// in, or that a tool or other C code has loaded.
func Present() bool { return C.coh_present() != 0 }

// Open loads the library in a file, or takes the one in the process if path is empty. Opening it
// again returns the same library. Opening another one is ErrLoaded.
func Open(path string) (*Library, error) {
	loading.Lock()
	defer loading.Unlock()
	if loaded != nil {
		if path != "" && path != loaded.Path {
			return loaded, fmt.Errorf("%w: %s", ErrLoaded, loaded.Path)
		}
		return loaded, nil
	}
	// A library may change the thread that it is loaded on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text := make([]byte, 1024)
	ctext, csize := (*C.char)(unsafe.Pointer(&text[0])), C.int(len(text))
	if path != "" {
		name := C.CString(path)
		defer C.free(unsafe.Pointer(name))
		if rc := C.coh_load(name, ctext, csize); rc > 0 {
			return nil, fmt.Errorf("%s is %s", path, cString(text))
		} else if rc != 0 {
			return nil, errors.New(cString(text))
		}
	} else if !Present() {
		return nil, errors.New("there is no MPI library in this process")
	}
	l := &Library{Path: path, ABI: ABI(C.coh_recognize())}
	if l.Path == "" {
		l.Path = C.GoString(C.coh_loaded_path())
	}
	if C.coh_bind(C.int(l.ABI), ctext, csize) != 0 {
		return nil, fmt.Errorf("%s is too old: it has no %s", l.Path, cString(text))
	}
	l.Text, l.Major, l.Minor = versions()
	l.Version = fmt.Sprintf("%d.%d", l.Major, l.Minor)
	loaded = l
	return l, nil
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
