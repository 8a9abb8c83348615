package tcp

// A stream carries the frames of a link that do not go through its socket directly. It behaves like a
// non-blocking socket: with nothing to read, or no room, it returns an error for which again reports
// true; at the end, 0 bytes and no error. The engine's lock guards it, except for disarm.
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

	// hides reports whether there may be something to read that the socket does not show.
	hides() bool
	// arm is called before a sleep on the socket. After it, new data to read, and with room also new room
	// to write, make the socket readable. It reports whether there is any already.
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

// hides reports whether the link may have something to read that its socket does not show.
func (l *link) hides() bool { return l.over != nil && l.over.hides() }

// listen makes a sleep on p end when the link has something to read, or room for waiting frames, and
// reports whether it has already.
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

// shut closes the link's socket. A stream's memory stays: a waiter may be about to disarm it.
func (l *link) shut() {
	l.dead = true
	sockClose(l.fd)
	l.fd = -1
}
