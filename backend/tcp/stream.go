package tcp

// A stream carries the frames of a link where they do not go through its socket as they are. It
// answers as a non-blocking socket does: with an error that again knows while there is nothing to
// read, or no room, and with 0 bytes and no error at the end. The engine's lock guards it, but for
// disarm.
//
// The socket stays what a waiter sleeps on.
type stream interface {
	attach(l *link) // before all others

	read(b []byte) (int, error)
	readv(a, b []byte) (int, error)
	write(b []byte) (int, error)
	writev(a, b []byte) (int, error)

	// push writes what the stream has taken and still has to get into the socket, and reports
	// whether any of it went.
	push() (moved bool, err error)
	// keeps reports whether there is such.
	keeps() bool

	// hides reports whether there may be something to read of which the socket says nothing.
	hides() bool
	// arm is called before a sleep on the socket: it sees to it that news to read, and with room that
	// there is some to write, make the socket readable. It reports whether there are such already.
	arm(room bool) (ready bool)
	// disarm ends that. It may be called without the lock.
	disarm()

	finish()  // nothing more will be written
	release() // gives memory back, when nothing of it is used any more
}

func (l *link) read(b []byte) (int, error) {
	if l.over == nil {
		return sockRead(l.fd, b)
	}
	return l.over.read(b)
}

func (l *link) readv(a, b []byte) (int, error) {
	if l.over == nil {
		return sockReadv(l.fd, a, b)
	}
	return l.over.readv(a, b)
}

func (l *link) put(b []byte) (int, error) {
	if l.over == nil {
		return sockWrite(l.fd, b)
	}
	return l.over.write(b)
}

func (l *link) putv(a, b []byte) (int, error) {
	if l.over == nil {
		return sockWritev(l.fd, a, b)
	}
	return l.over.writev(a, b)
}

// hides reports whether the link may have something to read of which its socket says nothing.
func (l *link) hides() bool { return l.over != nil && l.over.hides() }

// listen has a sleep on p end when the link has something to read, or room for what waits, and
// reports whether that is so already.
func (l *link) listen(p *pollset) (ready bool) {
	if l.over == nil {
		p.add(l.fd, l.waits())
		return false
	}
	p.add(l.fd, l.over.keeps())
	return l.over.arm(l.waits())
}

// finish says that nothing more will be written.
func (l *link) finish() {
	if l.over != nil {
		l.over.finish()
	}
	sockFinish(l.fd)
}

// shut closes the link's socket. What a stream has in memory stays: somebody may be about to disarm
// it.
func (l *link) shut() {
	l.dead = true
	sockClose(l.fd)
	l.fd = -1
}
