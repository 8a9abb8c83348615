// Package soft is a device in software for tests, which behaves like the devices of a driver. The
// host faults if it accesses device memory. Streams do their work later, in goroutines or in those that
// wait for it. Copies of memory that is not pinned block the caller. Errors appear late and stay. Calls
// fail on demand.
//
// It also counts what exists and what was copied ([Driver.Stats]), and detects mistakes whose
// effects on a real device depend on timing: writing host memory, or reading a copy's destination,
// while the copy is pending. A copy fills its destination with junk when it starts, so that early
// readers see junk, and checks that its source has not changed when it is done.
package soft
