// Package netlab breaks networks, for tests: hosts that are namespaces of this machine with a wire
// between them that is slow and loses, repeats, and changes packets, and a relay of connections
// that changes and drops bytes.
//
// # Networks
//
// A [Net] is a number of hosts. Each is a network namespace with one interface, a TUN device, whose
// other end this process reads: every packet between two hosts goes through a switch in Go, which
// does to it what the [Path] between the two says, counts it, and keeps a [Trace] on request. So
// packets are at hand as they are, nothing of the kernel is needed but namespaces and TUN, and what
// is asked of a test can be asked of the trace and not of a clock.
//
// A namespace lives as long as a thread, a process, or a descriptor in it. This process has a thread
// in each and holds the device; what it starts there dies with the thread. Nothing is left however
// the process ends.
//
// Making one takes CAP_NET_ADMIN. [Need] gives it to a test where user namespaces can, and skips it
// where they cannot.
//
// # Connections
//
// [Relay] joins two TCP connections and passes on what comes, changed by a [Plan] for each direction:
// bytes that flip, are left out, or come twice, ends and resets in the middle, silence. It takes
// no privileges, and the byte where something happens can be chosen.
package netlab
