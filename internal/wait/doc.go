// Package wait lets a goroutine sleep until another party has news, and wakes it.
//
// The sleeper reads a value, announces its sleep, looks once more for what it waits for, and sleeps until the value
// changes. A party that has news publishes them and then looks at the announcement. If there is one, it changes the
// value and wakes the sleeper. Only the sleeper takes its announcement back.
//
// A Bell does this between processes. A Crew does it for the goroutines of a
// process that wait for messages: one of them makes progress for all, and sleeps where other processes ring. A rank of
// backend/local is a goroutine of the same process: after Shut all goroutines of its crew follow.
package wait
