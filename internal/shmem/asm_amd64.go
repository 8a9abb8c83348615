package shmem

// Pause hints to the core that the caller is spinning.
func Pause()
