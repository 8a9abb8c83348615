// Package acceltest is what every driver of accelerators must do, as tests: one call of Test runs all of
// them on each device.
package acceltest
