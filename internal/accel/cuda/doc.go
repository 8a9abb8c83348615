// Package cuda drives NVIDIA's devices through libcuda.so.1. It loads the library at run time,
// without cgo, so that builds need nothing of CUDA. The library is loaded and initialized when
// devices are first used.
//
// Contexts are the devices' primary contexts, which the CUDA runtime and its libraries share. A
// call makes a device's context current on its thread, and then restores the previous one.
package cuda
