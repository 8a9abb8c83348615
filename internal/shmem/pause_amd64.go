package shmem

// Pause tells the core that the caller is spinning.
func Pause()
