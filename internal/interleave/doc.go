// Package interleave runs a protocol in every interleaving of its parties, up to a bound of preemptions.
//
// The parties are two to eight goroutines of one process, called threads. They run the real code, one at a time.
// Whatever they share are words and payloads of package word, which under the build tag interleave reports every
// access here. At each access the explorer chooses the thread that goes on. Explore runs the program again and
// again until it has made every choice.
//
// # Schedules
//
// A preemption is a switch away from a thread that could go on. Switches from a thread that sleeps, waits for a
// lock, polls in vain, or has ended are free. Few preemptions find most faults (Musuvathi and Qadeer, PLDI 2007).
// Two schedules that bring all threads into the same state are continued once. A state is what each thread has
// read from whom, and who wrote each word last: threads are deterministic, so it says what their variables are.
//
// # Memory
//
// Words are sequentially consistent, as in Go, except Release, which is a plain store on amd64: it goes into the
// store buffer of its thread, and becomes visible when the explorer says so, or at the next atomic operation of
// the thread that writes (total store order). Payloads carry vector clocks: two accesses without an order between
// them, one of which writes, are a race.
//
// # What it reports
//
// Threads that sleep or wait while nobody can wake them, threads that poll while nothing can change, more steps
// than any schedule should take, races of payloads, accesses to memory that was freed, panics, and what the
// program itself reports. The report has the schedule, step by step, and a seed to run it again.
package interleave
