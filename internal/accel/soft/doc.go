// Package soft is a device in software that behaves like the devices of a driver, for tests: memory in
// addresses of its own, which fault if the host follows them; streams whose work is done later, by a
// goroutine, in an order among streams that is seeded; copies of memory that is not pinned that keep the
// caller waiting; errors that appear late and stay; failures on demand.
//
// Beyond a driver it counts what is there and what was copied ([Driver.Stats]), and finds mistakes that a
// real device would punish by chance: host memory that is written, or of which the destination is read,
// while a copy of it is under way. The destination of a copy is filled with junk when the copy is
// started, so that who looks early sees junk; its source is compared when the copy is done.
package soft
