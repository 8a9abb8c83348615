package tcp

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// shared is a stream through memory that two ranks of a node share. The socket beside it shows that the
// peer has ended, and wakes a sleeping peer: a byte is written to it only if the other side has announced
// that it is about to sleep.
type shared struct {
	d     *shmem.Duplex
	l     *link
	looks uint32 // in vain
	check bool   // there may be something in the socket
	armed atomic.Bool

	ended bool  // the socket has
	err   error // with what, nil for its end

	bells [64]byte

	exposes bool // the peer can read this process's memory
	pid     int  // of the peer, whose memory this process can read; 0 if it cannot
}

// socketEvery is after how many looks in vain the socket is asked, which takes as long as some tens
// of them.
const socketEvery = 512

// ringTaste is how much is read at once while it is not known what: what follows can go where it
// belongs without another copy, and a second look costs no system call.
const ringTaste = 2 << 10

// attach makes the stream l's.
func (s *shared) attach(l *link) {
	s.l, l.taste = l, ringTaste
	l.exposes, l.pid = s.exposes && !l.e.spare, s.pid
	s.d.Bell = func() { sockWrite(l.fd, ring[:]) } // if there is no room, enough of them are in the socket
}

var ring [1]byte

func (s *shared) read(b []byte) (int, error) { return s.readv(b, nil) }

func (s *shared) readv(a, b []byte) (int, error) {
	for {
		n, err := s.d.Readv(a, b)
		if n > 0 || err != nil {
			return n, err
		}
		if s.ended {
			return 0, s.err
		}
		if s.looks++; !s.check && s.looks%socketEvery != 0 || !s.ask() {
			return 0, errAgain
		}
	}
}

// ask reads the socket, and reports whether it has ended: what was written to the ring before that
// is still to be read then.
func (s *shared) ask() bool {
	for s.check = false; ; {
		n, err := sockRead(s.l.fd, s.bells[:])
		switch {
		case n > 0:
			if s.armed.Load() { // it was for the leader, who sleeps on the socket
				s.l.e.wakeLeader()
			}
			if n < len(s.bells) {
				return false
			}
		case err != nil && again(err):
			return false
		default:
			s.ended, s.err = true, err
			return true
		}
	}
}

func (s *shared) write(b []byte) (int, error) { return s.writev(b, nil) }

func (s *shared) writev(a, b []byte) (int, error) {
	n, err := s.d.Writev(a, b)
	if err == nil && n == 0 {
		err = errAgain
	}
	return n, err
}

func (s *shared) push() (bool, error) { return false, nil }
func (s *shared) keeps() bool         { return false }
func (s *shared) hides() bool         { return true }

func (s *shared) arm(room bool) bool {
	s.check = true
	s.armed.Store(true)
	return s.d.Arm(room)
}

func (s *shared) disarm() {
	s.armed.Store(false)
	s.d.Disarm()
}

func (s *shared) finish()  {}
func (s *shared) release() { s.d.Close() }

// ringSize is the length of a ring between two of n ranks of a node: a MiB for a few, and less for
// many, so that all rings together stay below 128 MiB up to 64 ranks.
func ringSize(n int) int {
	size := ringMost
	for size > ringLeast && size*n*(n-1) > ringsMost {
		size /= 2
	}
	return size
}

const (
	ringMost  = 1 << 20
	ringLeast = 32 << 10
	ringsMost = 128 << 20
)

// The answers of two ranks that agree on shared memory, before a text.
const (
	shareNo byte = iota
	shareYes
)

// share agrees on shared memory with the rank at the other end of a connection. The one that accepted the
// connection (first) makes it. Without shared memory both get the reason; an error means that the
// connection cannot be used.
//
//  1. The first sends the name of the memory, or why it has none.
//  2. The other sends that it has mapped it, or why not.
//  3. Each sends its claim, and then whether it could read the other's proof.
func share(ctx context.Context, c *wire.Conn, size int, first bool) (s stream, reason string, err error) {
	var seg *shmem.Segment
	defer func() {
		if s == nil && seg != nil {
			seg.Close()
		}
	}()
	if first {
		var failed error
		var offer *shmem.Export
		if seg, failed = newRings(size); failed == nil {
			if offer, failed = shmem.NewExport(seg.FD(), 1); failed == nil {
				defer offer.Close()
			}
		}
		if failed != nil {
			return nil, failed.Error(), c.SendSettings(ctx, answer(shareNo, failed.Error()))
		}
		if err := c.SendSettings(ctx, answer(shareYes, offer.Name)); err != nil {
			return nil, "", err
		}
	}
	said, err := c.ReceiveSettings(ctx, 1+noticeMax)
	switch {
	case err != nil:
		return nil, "", err
	case len(said) == 0 || said[0] > shareYes:
		return nil, "", fmt.Errorf("rank %d: invalid answer %.20q about shared memory", c.Rank, said)
	case said[0] == shareNo:
		return nil, fmt.Sprintf("rank %d: %s", c.Rank, said[1:]), nil
	}
	if !first {
		fd, failed := shmem.Fetch(ctx, string(said[1:]))
		if failed == nil {
			seg, failed = shmem.Open(fd, shmem.DuplexSize(size))
		}
		if failed != nil {
			return nil, failed.Error(), c.SendSettings(ctx, answer(shareNo, failed.Error()))
		}
		if err := c.SendSettings(ctx, answer(shareYes, "")); err != nil {
			return nil, "", err
		}
	}
	seg.CloseFD()
	d, err := shmem.NewDuplex(seg, size, first)
	if err != nil {
		return nil, "", err
	}
	made := &shared{d: d}
	if err := made.try(ctx, c); err != nil {
		return nil, "", err
	}
	return made, "", nil
}

// newRings makes the memory for two rings, unless that would take half of the free memory or more:
// without a limit by a control group, the system kills processes when memory runs out.
func newRings(size int) (*shmem.Segment, error) {
	need := shmem.DuplexSize(size)
	if free, from := shmem.Room(); shmem.Supported && free >= 0 && int64(need) > free/2 {
		return nil, fmt.Errorf("shared memory of %d bytes: only %d bytes are left, according to %s", need, free, from)
	}
	return shmem.Create("cohort-tcp", need)
}

func answer(yes byte, text string) []byte {
	return append([]byte{yes}, text[:min(len(text), noticeMax)]...)
}
