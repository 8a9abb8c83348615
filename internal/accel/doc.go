// Package accel defines what package tensor needs of accelerators: devices with memory, streams
// that copy in order, and events. Folder cuda has the driver of CUDA devices, and internal/test/soft
// a device in software for tests.
package accel
