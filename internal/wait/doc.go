// Package wait has the one way to sleep until another party has news, and to wake who sleeps.
//
// Whoever is about to sleep reads a value, announces its sleep, looks once more for what it waits for, and sleeps
// until the value is another one. Whoever has news publishes them, looks at the announcement, and if there is one
// changes the value and wakes the sleeper. Only the sleeper takes its announcement back.
//
// Bell is this between processes, or wherever one party at a time sleeps. Crew is it for the goroutines of a process
// that wait for messages: one of them makes progress for all, and sleeps where other processes ring.
package wait
