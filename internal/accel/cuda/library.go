package cuda

import (
	"fmt"
	"strings"
	"unsafe"
)

// A function is one of the driver's functions, by its symbol. If a function has changed over time, its symbol includes
// the version that cuda.h selects.
type function string

const (
	cuInit                   function = "cuInit"
	cuDriverGetVersion       function = "cuDriverGetVersion"
	cuGetErrorName           function = "cuGetErrorName"
	cuGetErrorString         function = "cuGetErrorString"
	cuDeviceGetCount         function = "cuDeviceGetCount"
	cuDeviceGet              function = "cuDeviceGet"
	cuDeviceGetName          function = "cuDeviceGetName"
	cuDevicePrimaryCtxRetain function = "cuDevicePrimaryCtxRetain"
	cuCtxGetCurrent          function = "cuCtxGetCurrent"
	cuCtxPushCurrent         function = "cuCtxPushCurrent_v2"
	cuCtxPopCurrent          function = "cuCtxPopCurrent_v2"
	cuCtxSynchronize         function = "cuCtxSynchronize"
	cuMemGetInfo             function = "cuMemGetInfo_v2"
	cuMemAlloc               function = "cuMemAlloc_v2"
	cuMemFree                function = "cuMemFree_v2"
	cuMemHostAlloc           function = "cuMemHostAlloc"
	cuMemFreeHost            function = "cuMemFreeHost"
	cuPointerGetAttributes   function = "cuPointerGetAttributes"
	cuMemcpyDtoHAsync        function = "cuMemcpyDtoHAsync_v2"
	cuMemcpyHtoDAsync        function = "cuMemcpyHtoDAsync_v2"
	cuMemcpyDtoDAsync        function = "cuMemcpyDtoDAsync_v2"
	cuStreamCreate           function = "cuStreamCreate"
	cuStreamDestroy          function = "cuStreamDestroy_v2"
	cuStreamSynchronize      function = "cuStreamSynchronize"
	cuStreamWaitEvent        function = "cuStreamWaitEvent"
	cuEventCreate            function = "cuEventCreate"
	cuEventDestroy           function = "cuEventDestroy_v2"
	cuEventRecord            function = "cuEventRecord"
	cuEventQuery             function = "cuEventQuery"
	cuEventSynchronize       function = "cuEventSynchronize"
)

var functions = []function{
	cuInit, cuDriverGetVersion, cuGetErrorName, cuGetErrorString, cuDeviceGetCount, cuDeviceGet, cuDeviceGetName,
	cuDevicePrimaryCtxRetain, cuCtxGetCurrent, cuCtxPushCurrent, cuCtxPopCurrent, cuCtxSynchronize, cuMemGetInfo,
	cuMemAlloc, cuMemFree, cuMemHostAlloc, cuMemFreeHost, cuPointerGetAttributes, cuMemcpyDtoHAsync,
	cuMemcpyHtoDAsync, cuMemcpyDtoDAsync, cuStreamCreate, cuStreamDestroy, cuStreamSynchronize, cuStreamWaitEvent,
	cuEventCreate, cuEventDestroy, cuEventRecord, cuEventQuery, cuEventSynchronize,
}

// String returns the name of the function in cuda.h.
func (f function) String() string { return strings.TrimSuffix(string(f), "_v2") }

// names are the library's possible paths. Containers with NVIDIA's tools, and Linux on Windows,
// have it in folders that the dynamic linker may not search.
var names = []string{"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}

// A library is the loaded driver.
type library struct {
	name string
	at   map[function]uintptr
}

// A result is the CUresult that every function returns.
type result int32

// Results that this package distinguishes; the driver has the names and texts of all.
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

// text returns the driver's name and text of a result.
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

// goString copies a C string.
func goString(p *byte) string {
	const most = 1000 // longer than any text of the driver
	if p == nil {
		return ""
	}
	var b []byte
	// SAFETY: the string is a constant of the library and is read only up to its zero byte.
	for ; *p != 0 && len(b) < most; p = (*byte)(unsafe.Add(unsafe.Pointer(p), 1)) {
		b = append(b, *p)
	}
	return string(b)
}
