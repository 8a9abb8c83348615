// Package interleave runs a protocol in every interleaving of its parties, up to a bound of preemptions.
//
// The parties are at most eight goroutines of one process, called threads. They run the real code, one at a time.
// Everything that they share is a word or a payload of package word. Under the build tag interleave that package
// reports every access to this one. At each access the explorer chooses the thread that goes on. Explore runs the
// program again and again until it has made every choice.
//
// # Schedules
//
// A preemption is a switch away from a thread that could go on. Switches from a thread that sleeps, waits for a
// lock, polls in vain, or has ended are free. Few preemptions find most faults (Musuvathi and Qadeer, PLDI 2007).
// When two schedules bring all threads into the same state, only one of them is continued. A state is what each
// thread has read from which writer, and who wrote each word last. Threads are deterministic, so this determines
// their variables.
//
// # Memory
//
// Words are sequentially consistent, as in Go. The exception is Release, which is a plain store on amd64. It goes
// into the store buffer of its thread (total store order). It becomes visible when the explorer says so, or when the
// thread next stores or updates a word, takes or releases a lock, sleeps or wakes another thread. Payloads carry
// vector clocks: two accesses without an order between them, one of which writes, are a race.
//
// # What it reports
//
//   - threads that sleep or wait while no other thread can wake them
//   - threads that poll while nothing can change
//   - schedules with more than 20000 steps
//   - races of payloads, and accesses to memory that was freed
//   - panics, and what the program itself reports
//
// The report has the schedule, step by step, and a seed to run it again.
package interleave
