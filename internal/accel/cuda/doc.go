// Package cuda drives NVIDIA's devices through libcuda.so.1, which is loaded at run time, without cgo:
// nothing of CUDA is needed to build. The library is looked for, and initialised, when somebody first
// asks for devices, and not before.
//
// Contexts are the devices' primary ones, which the CUDA runtime and libraries on top of it use, too. A
// thread has a device's context during a call, and afterwards the one that it had before.
package cuda
