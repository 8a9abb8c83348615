//go:build !interleave

package word

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

// FutexWait sleeps in the kernel if the value of w is old, until FutexWake, a signal or the timeout (0: none). It may
// return early; the caller looks again. It works on Linux only.
func FutexWait(w *Uint32, old uint32, timeout time.Duration) { shmem.FutexWait(w, old, timeout) }

// FutexWake wakes up to n sleepers of the word, in all processes.
func FutexWake(w *Uint32, n int) { shmem.FutexWake(w, n) }
