package tcp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// Long messages between two ranks of a node that may read each other's memory are exposed if the ranks
// share processors: the RTS says where the data are, and the receiver copies them from there, once,
// while the sender does not run. Ranks with a processor each are faster with the rings: one copies in
// while the other copies out, within the caches, and neither calls the kernel.
//
//	sender                              receiver
//	Expose: length and address       →
//	                                    reads them, a piece each time it makes progress
//	                                 ←  CTS with FlagYes: it has read them
//	the send is complete
//	Ack                              →
//	                                    the receive is complete
//
// Only the receiver writes to its buffer, so nothing writes there after it has given up. A sender that
// cancels its message may reuse its buffer at once: the receiver discards what it still reads there,
// because its receive completes only with the Ack, and a Withdraw arrives instead. If the data cannot be
// read, the receiver asks for them, and they come through the rings.

const (
	exposeMin    = 32 << 10  // shortest message that is exposed
	readMost     = 256 << 10 // read at once, with the lock held
	exposureSize = 16        // length and address
)

// expose sends an RTS with the address of the message.
func (e *engine) expose(l *link, o *op, h *wire.Header) {
	binary.LittleEndian.PutUint64(o.exposure[:], uint64(len(o.buf)))
	binary.LittleEndian.PutUint64(o.exposure[8:], shmem.Addr(o.buf))
	o.exposed = true
	h.Kind, h.Length = wire.Expose, exposureSize
	l.emit(h, o.exposure[:], o)
}

// onExpose handles such an RTS.
func (e *engine) onExpose(l *link, h *wire.Header) error {
	size, addr := binary.LittleEndian.Uint64(l.exposure[:]), binary.LittleEndian.Uint64(l.exposure[8:])
	if size > wire.MaxMessage || addr == 0 || addr+size < addr {
		return fmt.Errorf("an exposed message of %d bytes at %#x", size, addr)
	}
	if l.pid == 0 {
		addr = 0 // ask for the data instead
	}
	return e.onReadyToSend(l, h, int(size), addr)
}

// readPeer starts to read the data of a receive from the peer's memory.
func (e *engine) readPeer(o *op, addr uint64) {
	if o.n == 0 {
		o.read = true
		e.ask(o, wire.FlagYes)
		return
	}
	o.addr, o.read = addr, true
	e.reads = append(e.reads, o)
}

// read copies a piece of each message that is being read.
func (e *engine) read() {
	for i := 0; i < len(e.reads); {
		o := e.reads[i]
		l := e.links[o.peer]
		k := min(o.n-o.at, readMost)
		err := errUnreadable
		if l.pid != 0 {
			err = shmem.ReadProcess(l.pid, o.addr+uint64(o.at), o.buf[o.at:o.at+k])
		}
		if err != nil {
			// The memory of a cancelled message may be unmapped. Any other error would occur again.
			if !errors.Is(err, syscall.EFAULT) {
				l.pid = 0
			}
			o.at, o.read = 0, false
			e.stopReading(o)
			e.ask(o, 0)
			continue
		}
		if o.at += k; o.at == o.n {
			e.stopReading(o)
			e.ask(o, wire.FlagYes)
			continue
		}
		i++
	}
}

var errUnreadable = errors.New("the memory of the rank cannot be read")

// stopReading takes a receive out of those that read.
func (e *engine) stopReading(o *op) {
	if o.addr != 0 {
		o.addr = 0
		i := slices.Index(e.reads, o)
		e.reads = slices.Delete(e.reads, i, i+1)
	}
}

// exposedRead completes a send whose data the peer has read.
func (e *engine) exposedRead(l *link, o *op, h *wire.Header) error {
	if !o.exposed {
		return errors.New("it claims to have read a message that was not exposed to it")
	}
	e.finish(o, backend.Status{}, nil)
	l.emit(&wire.Header{Kind: wire.Ack, Token: h.Reply}, nil, nil)
	return nil
}

// returned completes a receive that has read its data from the memory of the peer.
func (e *engine) returned(l *link, h *wire.Header) error {
	o := e.lookup(h.Token, l.peer)
	if o == nil || o.state != opTaking {
		return nil // given up since
	}
	if !o.read || o.addr != 0 {
		return fmt.Errorf("it confirms the reading of %d bytes, of which %d were read", o.n, o.at)
	}
	e.received(o, o.env, o.size, o.n)
	return nil
}

// proof is random bytes that another process reads to find out whether it can. It compares them with the
// copy that this process has sent it.
var proof = sync.OnceValue(func() []byte {
	b := make([]byte, proofSize)
	rand.Read(b)
	return b
})

const (
	proofSize = 16
	claimSize = 16 + proofSize
)

// claim encodes the address of this process's proof, and the proof.
func claim() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, claimSize), uint64(os.Getpid()))
	b = binary.LittleEndian.AppendUint64(b, shmem.Addr(proof()))
	return append(b, proof()...)
}

// readable returns the process ID of a claim if its proof can be read, otherwise 0.
func readable(said []byte) (pid int) {
	if len(said) != claimSize {
		return 0
	}
	pid = int(int32(binary.LittleEndian.Uint64(said)))
	got := make([]byte, proofSize)
	if pid <= 0 || shmem.ReadProcess(pid, binary.LittleEndian.Uint64(said[8:]), got) != nil || string(got) != string(said[16:]) {
		return 0
	}
	return pid
}

// try finds out which of the two ranks may read the other's memory.
func (s *shared) try(ctx context.Context, c *wire.Conn) error {
	if err := c.SendSettings(ctx, claim()); err != nil {
		return err
	}
	said, err := c.ReceiveSettings(ctx, claimSize)
	if err != nil {
		return err
	}
	s.pid = readable(said)
	can := shareNo
	if s.pid != 0 {
		can = shareYes
	}
	if err := c.SendSettings(ctx, []byte{can}); err != nil {
		return err
	}
	if said, err = c.ReceiveSettings(ctx, 1); err != nil {
		return err
	}
	s.exposes = len(said) == 1 && said[0] == shareYes
	return nil
}
