// Package netlab makes networks that fail, for tests: hosts that are namespaces of this machine,
// connected by a switch that delays and loses packets, and a relay that changes and drops bytes of a
// connection.
//
// # Networks
//
// A [Net] is a number of hosts. Each host is a network namespace with one interface, a TUN device, whose
// other end this process reads. Every packet between two hosts passes through a switch in Go, which
// applies the [Path] between the two, counts the packet, and records it in a [Trace] on request. So tests
// can examine every packet, need only namespaces and TUN from the kernel, and can assert on the trace
// instead of on times.
//
// A namespace lives as long as a thread, a process, or a descriptor in it. This process has a thread in
// each and holds the device; processes it starts there die with the thread. Nothing is left, however the
// process ends.
//
// Making a network takes CAP_NET_ADMIN. [Need] obtains it through user namespaces, and skips the test if
// it cannot.
//
// # Connections
//
// [Relay] joins two TCP connections and forwards their data, changed by a [Plan] for each direction:
// flipped, dropped, or repeated bytes, ends and resets in the middle, silence. It needs no privileges, and
// a fault can be placed at a byte.
package netlab
