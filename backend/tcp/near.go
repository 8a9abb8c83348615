package tcp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// near is the link to a rank of the same node: memory that both share, and the socket beside it, which
// shows that the peer has ended and wakes a sleeping peer. A byte is written to it only if the other side
// has announced that it is about to sleep.
type near struct {
	*memlink.Link
	seg *shmem.Segment
	fd  int

	mine, theirs *atomic.Uint32 // whether an end sleeps
	looks        uint32         // in vain
	check        bool           // there may be something in the socket
	armed        atomic.Bool
	wake         func() // wakes the leader of this process
	bells        [64]byte
}

// socketEvery is after how many looks in vain the socket is asked, which takes as long as some tens of
// them.
const socketEvery = 512

// The memory of two ranks: the words of their sleep, then the direction of the first, then the other.
const (
	nearSleep = 128 // between the two words
	nearStart = 4096
)

func nearSize(data int) int { return nearStart + 2*memlink.Size(data) }

// newNear returns one end of a link through memory: that of the rank that made it (first) or the other.
func newNear(seg *shmem.Segment, data int, first bool, p claimed, spare bool) *near {
	n := &near{seg: seg, fd: -1}
	cfg := memlink.Config{Segment: seg, Data: data, Out: nearStart, In: nearStart + memlink.Size(data),
		PID: p.pid, Copies: p.pid != 0 && p.mutual, Spare: spare, Bell: n.bell, Kill: p.kill}
	n.mine, n.theirs = shmem.At[atomic.Uint32](seg, 0), shmem.At[atomic.Uint32](seg, nearSleep)
	if !first {
		cfg.Out, cfg.In = cfg.In, cfg.Out
		n.mine, n.theirs = n.theirs, n.mine
	}
	n.Link = memlink.New(cfg)
	return n
}

// Memory returns the link itself, for the engine.
func (n *near) Memory() *memlink.Link { return n.Link }

func (n *near) bell() {
	if n.theirs.Load() != 0 && n.theirs.CompareAndSwap(1, 0) {
		sockWrite(n.fd, ring[:]) // if there is no room, enough of them are in the socket
	}
}

var ring [1]byte

// Read implements engine.Link.
func (n *near) Read(a *frame.Arrival) (bool, error) {
	moved, err := n.Link.Read(a)
	if moved || err != nil {
		return moved, err
	}
	if n.looks++; n.check || n.looks%socketEvery == 0 {
		n.ask()
	}
	return false, nil
}

// ask reads the socket. After the end of the socket, Read still delivers the frames in the rings.
func (n *near) ask() {
	for n.check = false; ; {
		k, err := sockRead(n.fd, n.bells[:])
		switch {
		case k > 0:
			if n.armed.Load() { // it was for the leader, who sleeps on the socket
				n.wake()
			}
			if k < len(n.bells) {
				return
			}
		case err != nil && again(err):
			return
		default:
			n.Ended(err)
			return
		}
	}
}

// Arm implements engine.Link.
//
// Invariant: each end publishes its news before it reads the other's word, and announces its sleep before
// it reads the other's news. So at least one of the two sees the other.
func (n *near) Arm(room bool) bool {
	n.check = true
	n.armed.Store(true)
	n.mine.Store(1)
	return n.Ready(room)
}

// Disarm implements engine.Link.
func (n *near) Disarm() {
	n.armed.Store(false)
	n.mine.Store(0)
}

// Discard implements engine.Link.
func (n *near) Discard() { discard(n.fd, n.bells[:]) }

// Limit implements engine.Link.
func (n *near) Limit(d time.Duration) { sockLimit(n.fd, d) }

// Finish implements engine.Link.
func (n *near) Finish(goodbye bool) {
	n.Link.Finish(goodbye)
	sockFinish(n.fd)
}

// Close implements engine.Link.
func (n *near) Close() {
	if n.fd >= 0 {
		sockClose(n.fd)
		n.fd = -1
	}
}

// Release implements engine.Link.
func (n *near) Release() { n.seg.Close() }

// ringSize is the length of a data ring between two of n ranks of a node: a MiB for a few, and less for
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
func share(ctx context.Context, c *wire.Conn, data int, first, spare bool) (n *near, reason string, err error) {
	var seg *shmem.Segment
	defer func() {
		if n == nil && seg != nil {
			seg.Close()
		}
	}()
	if first {
		var failed error
		var export *shmem.Export
		if seg, failed = newRings(data); failed == nil {
			if export, failed = shmem.NewExport(seg.FD(), 1); failed == nil {
				defer export.Close()
			}
		}
		if failed != nil {
			return nil, failed.Error(), c.SendSettings(ctx, answer(shareNo, failed.Error()))
		}
		if err := c.SendSettings(ctx, answer(shareYes, export.Name)); err != nil {
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
			seg, failed = shmem.Open(fd, nearSize(data))
		}
		if failed != nil {
			return nil, failed.Error(), c.SendSettings(ctx, answer(shareNo, failed.Error()))
		}
		if err := c.SendSettings(ctx, answer(shareYes, "")); err != nil {
			return nil, "", err
		}
	}
	seg.CloseFD()
	p, err := try(ctx, c)
	if err != nil {
		return nil, "", err
	}
	return newNear(seg, data, first, p, spare), "", nil
}

// newRings makes the memory for two ranks, unless that would take half of the free memory or more:
// without a limit by a control group, the system kills processes when memory runs out.
func newRings(data int) (*shmem.Segment, error) {
	need := nearSize(data)
	if free, from := shmem.Room(); shmem.Supported && free >= 0 && int64(need) > free/2 {
		return nil, fmt.Errorf("shared memory of %d bytes: only %d bytes are left, according to %s", need, free, from)
	}
	return shmem.Create("cohort-tcp", need)
}

func answer(yes byte, text string) []byte {
	return append([]byte{yes}, text[:min(len(text), noticeMax)]...)
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

// claimed is what two ranks have found out about copies between their processes.
type claimed struct {
	pid    int    // of the peer, whose memory this process can read; 0 if it cannot
	mutual bool   // the peer can read this process's memory
	said   []byte // the peer's claim
}

// kill ends the peer's process. A process that has its number by now does not have its proof.
func (p claimed) kill() {
	process, err := shmem.OpenProcess(p.pid)
	if err != nil {
		return
	}
	defer process.Close()
	if readable(p.said) == p.pid {
		process.Kill()
	}
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
func try(ctx context.Context, c *wire.Conn) (p claimed, err error) {
	if err := c.SendSettings(ctx, claim()); err != nil {
		return p, err
	}
	if p.said, err = c.ReceiveSettings(ctx, claimSize); err != nil {
		return p, err
	}
	can := shareNo
	if p.pid = readable(p.said); p.pid != 0 {
		can = shareYes
	}
	if err := c.SendSettings(ctx, []byte{can}); err != nil {
		return p, err
	}
	said, err := c.ReceiveSettings(ctx, 1)
	p.mutual = len(said) == 1 && said[0] == shareYes
	return p, err
}
