// Package acceltest is the test suite of drivers of accelerators: one call of Test runs it on each
// device.
package acceltest
