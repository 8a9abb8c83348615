// Package accel defines what package tensor needs of accelerators: devices with memory, streams
// that copy in order, and events. Its subfolders have the drivers: cuda, and soft, a device in
// software for tests.
package accel
