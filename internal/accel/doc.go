// Package accel says what package tensor needs of accelerators: devices with memory of their own,
// streams in which copies happen one after the other, and events. Its folders have the drivers: cuda,
// and soft, a device in software that behaves like one, for tests.
package accel
