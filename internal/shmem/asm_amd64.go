package shmem

// Pause hints to the core that the caller is spinning.
func Pause()

// Own asks the core for the cache line of *p, because the caller will write to it. It does not wait for the line.
func Own(p *uint32)

// OwnAll is Own for the lines in which b lies, if b begins with a line.
//
//go:noescape
func OwnAll(b []byte)

// Demote moves the lines in which b lies, if b begins with a line, from the core's own caches to the one that cores share,
// where another core reads them sooner. It takes some 10 ns a line. Processors that cannot do this ignore it.
//
//go:noescape
func Demote(b []byte)

// Fetch asks the core for the cache line of *p, because the caller will read it. It does not wait for the line.
func Fetch(p *uint32)
