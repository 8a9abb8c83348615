package cuda

import (
	"fmt"
	"unsafe"
)

// A function is one of the driver's; symbols has their names. Where a function was changed in the
// past, the name with its version is the one that cuda.h means by the name without.
type function int

const (
	cuInit function = iota
	cuDriverGetVersion
	cuGetErrorName
	cuGetErrorString
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDevicePrimaryCtxRetain
	cuCtxGetCurrent
	cuCtxPushCurrent
	cuCtxPopCurrent
	cuCtxSynchronize
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostAlloc
	cuMemFreeHost
	cuPointerGetAttributes
	cuMemcpyDtoHAsync
	cuMemcpyHtoDAsync
	cuMemcpyDtoDAsync
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamWaitEvent
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventQuery
	cuEventSynchronize
	functions // how many
)

var symbols = [functions]string{
	cuInit:                   "cuInit",
	cuDriverGetVersion:       "cuDriverGetVersion",
	cuGetErrorName:           "cuGetErrorName",
	cuGetErrorString:         "cuGetErrorString",
	cuDeviceGetCount:         "cuDeviceGetCount",
	cuDeviceGet:              "cuDeviceGet",
	cuDeviceGetName:          "cuDeviceGetName",
	cuDevicePrimaryCtxRetain: "cuDevicePrimaryCtxRetain",
	cuCtxGetCurrent:          "cuCtxGetCurrent",
	cuCtxPushCurrent:         "cuCtxPushCurrent_v2",
	cuCtxPopCurrent:          "cuCtxPopCurrent_v2",
	cuCtxSynchronize:         "cuCtxSynchronize",
	cuMemGetInfo:             "cuMemGetInfo_v2",
	cuMemAlloc:               "cuMemAlloc_v2",
	cuMemFree:                "cuMemFree_v2",
	cuMemHostAlloc:           "cuMemHostAlloc",
	cuMemFreeHost:            "cuMemFreeHost",
	cuPointerGetAttributes:   "cuPointerGetAttributes",
	cuMemcpyDtoHAsync:        "cuMemcpyDtoHAsync_v2",
	cuMemcpyHtoDAsync:        "cuMemcpyHtoDAsync_v2",
	cuMemcpyDtoDAsync:        "cuMemcpyDtoDAsync_v2",
	cuStreamCreate:           "cuStreamCreate",
	cuStreamDestroy:          "cuStreamDestroy_v2",
	cuStreamSynchronize:      "cuStreamSynchronize",
	cuStreamWaitEvent:        "cuStreamWaitEvent",
	cuEventCreate:            "cuEventCreate",
	cuEventDestroy:           "cuEventDestroy_v2",
	cuEventRecord:            "cuEventRecord",
	cuEventQuery:             "cuEventQuery",
	cuEventSynchronize:       "cuEventSynchronize",
}

// String is what errors call it: as cuda.h does.
func (f function) String() string {
	name := symbols[f]
	if n := len(name) - len("_v2"); name[n:] == "_v2" {
		name = name[:n]
	}
	return name
}

// names are those the library may have. Containers with NVIDIA's tools have it in a folder that the
// dynamic linker may not look into; so has Linux on Windows.
var names = []string{"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}

// A library is the loaded driver.
type library struct {
	name string
	at   [functions]uintptr
}

// A result is what every function returns, a CUresult of cuda.h.
type result int32

// Those that mean something here; the driver knows the names and texts of all.
const (
	success             result = 0
	errInvalidValue     result = 1
	errOutOfMemory      result = 2
	errNotInitialized   result = 3
	errStubLibrary      result = 34
	errDeviceUnavail    result = 46
	errNoDevice         result = 100
	errInvalidDevice    result = 101
	errNotReady         result = 600
	errNotSupported     result = 801
	errSystemNotReady   result = 802
	errDriverMismatch   result = 803
	errCompatNotOffered result = 804
)

// text returns what the driver says of a result.
func (l *library) text(r result) string {
	name, sentence := l.say(cuGetErrorName, r), l.say(cuGetErrorString, r)
	if name == "" {
		return fmt.Sprintf("error %d", int32(r))
	}
	return fmt.Sprintf("%s (%d): %s", name, int32(r), sentence)
}

func (l *library) say(f function, r result) string {
	var text *byte
	if l.call(f, uintptr(r), uintptr(unsafe.Pointer(&text))) != success {
		return ""
	}
	return goString(text)
}

// goString copies a string of C's.
func goString(p *byte) string {
	const most = 1000 // no text of the driver's is as long
	if p == nil {
		return ""
	}
	var b []byte
	// SAFETY: the string is a constant of the library's, and ends at a zero byte, up to which it is read.
	for ; *p != 0 && len(b) < most; p = (*byte)(unsafe.Add(unsafe.Pointer(p), 1)) {
		b = append(b, *p)
	}
	return string(b)
}
