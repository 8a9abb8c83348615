package shmem

// Pause hints to the core that the caller is spinning.
func Pause()

// Own asks the core for the cache line of *p, because the caller will write to it. It does not wait for the line.
func Own(p *uint32)

// Fetch asks the core for the cache line of *p, because the caller will read it. It does not wait for the line.
func Fetch(p *uint32)
