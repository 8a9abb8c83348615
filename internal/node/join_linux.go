package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// How ranks join. The lowest one, rank 0 of the node, listens on an abstract socket named after the user and
// the meeting; both ends check the other's user. All messages have one length: yes or why not, and a text.
//
//	rank r → 0   hello: the text names the version of this and of the segment, the rank, the size, and the process
//	0 → rank r   yes, with the segment's descriptor
//	rank r → 0   yes: its part of the control area is filled in, and copies with rank 0 were tried
//	0 → rank r   yes: copies with all ranks were tried, and the verdict is that the job starts
const (
	hello       = "cohort-node6: rank %d of %d, process %d"
	messageSize = 512
	// refuseLimit is how long a rank that cannot start the job tries to tell the others.
	refuseLimit = 2 * time.Second
	// lateFor is how long a rank whose own time is over waits for rank 0 to name the missing ranks.
	lateFor = 500 * time.Millisecond
)

// The first byte of a message. A text follows, and zeros.
const (
	no byte = iota
	yes
	noMemory // it has the same sentinel on every rank
)

func address(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("@cohort-node/%d/%x", os.Geteuid(), sum[:16])
}

func join(ctx context.Context, cfg *Config, l layout) (seg *shmem.Segment, err error) {
	if l.n == 1 {
		return create(cfg, l)
	}
	// One descriptor for the socket, one for the segment, and one for every other rank, first for its
	// connection and then for its watch.
	why := shmem.Files(l.n+1, fmt.Sprintf("a job of %d ranks", l.n))
	if why == nil && cfg.Rank == 0 {
		seg, why = create(cfg, l)
	}
	if why != nil { // the other ranks are told for a while
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, refuseLimit)
		defer cancel()
	}
	if cfg.Rank == 0 {
		err = lead(ctx, seg, cfg, l, why)
	} else {
		seg, err = attach(ctx, cfg, l, why)
	}
	if err = cmp.Or(why, err); err != nil && seg != nil {
		seg.Close()
		return nil, err
	}
	return seg, err
}

func create(cfg *Config, l layout) (*shmem.Segment, error) {
	if l.size == math.MaxInt {
		return nil, backend.Faultf(backend.ErrAlloc, "%d ranks of one node need more memory than a process with addresses of %d bits can map; start fewer ranks on a node, or build for 64 bits", l.n, bits.UintSize)
	}
	seg, err := shmem.CreateSparse("cohort-node", l.size, l.start)
	if err != nil {
		return nil, &backend.Fault{Sentinel: backend.ErrAlloc, Text: err.Error()}
	}
	area(seg, l, cfg.Rank).fill()
	return seg, nil
}

// lead is rank 0's part. It admits the other ranks, and goes through the steps of the protocol with them. An error goes
// to all of them, as does the reason why the job cannot start, if there is one.
func lead(ctx context.Context, seg *shmem.Segment, cfg *Config, l layout, why error) (err error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: address(cfg.Name), Net: "unix"})
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("another process is rank %d of job %q already; start one rank %[1]d per job, and give each job its own COHORT_JOB", cfg.Ranks[0], cfg.Job)
	}
	if err != nil {
		return err
	}
	defer ln.Close()
	conns := make([]*net.UnixConn, l.n) // by rank
	defer func() {
		for _, c := range conns {
			if c != nil {
				answer(c, err)
			}
		}
	}()
	if err := admit(ctx, ln, conns, cfg, why); err != nil {
		return err
	}
	// No one else may join. A rank that has started may join the next job of this name, and must not
	// find this one's socket.
	ln.Close()
	defer context.AfterFunc(ctx, func() {
		for _, c := range conns[1:] {
			c.SetDeadline(time.Unix(1, 0))
		}
	})()
	for _, c := range conns[1:] {
		say(c, nil, unix.UnixRights(seg.FD())...) // an error shows when it is to answer
	}
	for r := 1; r < l.n; r++ {
		_, err := hear(conns[r], cfg.Ranks[r], "")
		if err != nil && ctx.Err() != nil {
			return missing(ctx, cfg, func(q int) bool { return q == r })
		}
		if err != nil {
			return err
		}
		noteCopy(seg, l, r)
	}
	if v := shmem.At[control](seg, 0).verdict.settle(started); v != started {
		return fmt.Errorf("rank %d gave up before all ranks had joined", cfg.Ranks[v-gaveUp])
	}
	for _, c := range conns[1:] {
		say(c, nil)
	}
	return nil
}

// admit accepts connections until all ranks have said hello, or ctx ends. If the job cannot start, for the reason why or
// because of a rank's hello, it tells the ranks that come, for a while, and returns the reason.
func admit(ctx context.Context, ln *net.UnixListener, conns []*net.UnixConn, cfg *Config, why error) error {
	defer context.AfterFunc(ctx, func() { ln.SetDeadline(time.Unix(1, 0)) })()
	pids := make([]int, len(conns))
	var refused error // the latest
	for came := 1; came < len(conns); {
		c, err := ln.AcceptUnix()
		switch {
		case err == nil:
		case why != nil:
			return why
		case ctx.Err() == nil:
			return err
		default:
			err = missing(ctx, cfg, func(r int) bool { return r > 0 && conns[r] == nil })
			if refused != nil {
				err = fmt.Errorf("%w; a process was refused: %w", err, refused)
			}
			return err
		}
		rank, pid, ours, err := readHello(ctx, c, cfg)
		if err == nil && conns[rank] != nil {
			err = fmt.Errorf("another process is rank %d already (process %d)", cfg.Ranks[rank], pids[rank])
		}
		switch {
		case err == nil:
			came++
			err = why
		case ours && why == nil:
			why = err
			ln.SetDeadline(time.Now().Add(refuseLimit))
		}
		if err != nil {
			answer(c, err)
			refused = err
			continue
		}
		c.SetDeadline(time.Time{})
		conns[rank], pids[rank] = c, pid
	}
	return why
}

// answer ends a connection: with the reason, if there is one.
func answer(c *net.UnixConn, why error) {
	if why != nil {
		c.SetDeadline(time.Now().Add(time.Second))
		say(c, why)
	}
	c.Close()
}

// attach is the part of the other ranks.
func attach(ctx context.Context, cfg *Config, l layout, why error) (seg *shmem.Segment, err error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Now().Add(lateFor)) })()
	defer func() {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("not all ranks joined (%v), and rank %d has not reported which; %s", context.Cause(ctx), cfg.Ranks[0], together)
		}
	}()
	switch uid, pid, err := shmem.PeerOf(c); {
	case err != nil:
		return nil, err
	case uid != os.Geteuid():
		return nil, fmt.Errorf("the socket of job %q belongs to user %d, not to this user (%d)", cfg.Job, uid, os.Geteuid())
	case cfg.PIDs != nil && pid != cfg.PIDs[0]:
		return nil, fmt.Errorf("the socket of job %q belongs to process %d, not to rank %d (process %d)", cfg.Job, pid, cfg.Ranks[0], cfg.PIDs[0])
	}
	send(c, yes, fmt.Sprintf(hello, cfg.Rank, l.n, os.Getpid())) // an error shows in the answer
	if why == nil {
		seg, why = receive(c, cfg, l)
	}
	if why != nil {
		say(c, why) // rank 0 passes it on to all
		return nil, why
	}
	area(seg, l, cfg.Rank).fill()
	noteCopy(seg, l, 0)
	say(c, nil) // an error shows in the answer
	if _, err = hear(c, cfg.Ranks[0], " gave up"); err != nil && shmem.At[control](seg, 0).verdict.settle(gaveUp+uint32(cfg.Rank)) == started {
		err = nil
	}
	return seg, err
}

// receive maps the segment that rank 0 sends.
func receive(c *net.UnixConn, cfg *Config, l layout) (*shmem.Segment, error) {
	fd, err := hear(c, cfg.Ranks[0], " refused")
	if err == nil && fd < 0 {
		err = fmt.Errorf("rank %d sent no shared memory", cfg.Ranks[0])
	}
	if err != nil {
		return nil, err
	}
	seg, err := shmem.OpenSparse(fd, l.size)
	if errors.Is(err, syscall.ENOMEM) {
		return nil, &backend.Fault{Sentinel: backend.ErrAlloc, Text: err.Error()}
	}
	if err != nil {
		return nil, fmt.Errorf("rank %d may run another version of cohort: %w", cfg.Ranks[0], err)
	}
	return seg, nil
}

// noteCopy tries copies to and from a rank that has filled in its area, and records a failure.
func noteCopy(seg *shmem.Segment, l layout, rank int) {
	if area(seg, l, rank).who.Process().TryCopy() != nil {
		shmem.At[control](seg, 0).noCMA.Store(1)
	}
}

// dial connects to rank 0, which may not be listening yet.
func dial(ctx context.Context, cfg *Config) (*net.UnixConn, error) {
	name := address(cfg.Name)
	for n, pause := 1, time.Millisecond; ; n, pause = n+1, min(2*pause, 50*time.Millisecond) {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EAGAIN) {
			return nil, err
		}
		// Ranks whose processes are known share a network namespace. To look takes milliseconds.
		if cfg.PIDs == nil && n >= 8 && n&(n-1) == 0 {
			if pid := shmem.Apart("COHORT_JOB="+cfg.Job, fmt.Sprint("COHORT_RANK=", cfg.Ranks[0])); pid != 0 {
				return nil, fmt.Errorf("rank %d (process %d) is in another network namespace; %s", cfg.Ranks[0], pid, together)
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("rank %d did not appear (%v); %s", cfg.Ranks[0], context.Cause(ctx), together)
		case <-time.After(pause):
		}
	}
}

// readHello checks a connection: the user, then the hello. ours reports whether it is of a process that was started as a
// rank of this job, although it cannot be one.
func readHello(ctx context.Context, c *net.UnixConn, cfg *Config) (rank, pid int, ours bool, err error) {
	uid, pid, err := shmem.PeerOf(c)
	if err != nil {
		return 0, 0, false, err
	}
	if uid != os.Geteuid() {
		return 0, 0, false, fmt.Errorf("user %d is not the job's user", uid)
	}
	d := time.Now().Add(5 * time.Second)
	if end, ok := ctx.Deadline(); ok && end.Before(d) {
		d = end
	}
	c.SetDeadline(d)
	b := make([]byte, messageSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return 0, 0, false, err
	}
	var size, own int
	fmt.Sscanf(string(b[1:]), hello, &rank, &size, &own) // an error shows in the comparison
	switch text := strings.TrimRight(string(b[1:]), "\x00"); {
	case b[0] != yes || text != fmt.Sprintf(hello, rank, size, own):
		return 0, 0, false, errors.New("not a rank of this version of cohort")
	case own == pid && cfg.PIDs != nil && (rank < 1 || rank >= len(cfg.PIDs) || pid != cfg.PIDs[rank]):
		return 0, 0, false, fmt.Errorf("process %d is not a rank of this job", pid)
	case size != len(cfg.Ranks):
		err = fmt.Errorf("rank %d was started for %d ranks, rank 0 for %d", rank, size, len(cfg.Ranks))
	case rank < 1 || rank >= size:
		err = fmt.Errorf("there is no rank %d in a job of %d", rank, size)
	case own != pid:
		err = fmt.Errorf("rank %d is in another PID namespace (it is process %d there and %d here); start all ranks in one, or use backend tcp", rank, own, pid)
	}
	return rank, pid, true, err
}

// send sends a message, with a descriptor if there are rights.
func send(c *net.UnixConn, kind byte, text string, rights ...byte) {
	b := make([]byte, messageSize)
	b[0] = kind
	copy(b[1:], text)
	c.WriteMsgUnix(b, rights, nil)
}

// say sends yes, or why not.
func say(c *net.UnixConn, why error, rights ...byte) {
	if why == nil {
		send(c, yes, "", rights...)
	} else if f, ok := errors.AsType[*backend.Fault](why); ok && f.Sentinel == backend.ErrAlloc {
		send(c, noMemory, f.Text)
	} else {
		send(c, no, why.Error())
	}
}

// hear waits until a rank says yes, and returns the descriptor that came with it, or -1. did is what the rank
// did if it says no.
func hear(c *net.UnixConn, rank int, did string) (fd int, err error) {
	b := make([]byte, messageSize)
	n, fd, err := shmem.ReceiveFD(c, b)
	if errors.Is(err, syscall.EMFILE) {
		return -1, err
	}
	if err == nil {
		_, err = io.ReadFull(c, b[n:])
	}
	if err == nil && b[0] == yes {
		return fd, nil
	}
	if fd >= 0 {
		unix.Close(fd)
	}
	if err != nil {
		return -1, fmt.Errorf("rank %d ended while the job was joining: %w", rank, err)
	}
	text, _, _ := strings.Cut(string(b[1:]), "\x00")
	switch text = fmt.Sprintf("rank %d%s: %s", rank, did, text); b[0] {
	case no:
		return -1, errors.New(text)
	case noMemory:
		return -1, &backend.Fault{Sentinel: backend.ErrAlloc, Text: text}
	}
	return -1, fmt.Errorf("rank %d runs another version of cohort", rank)
}

const together = "start all ranks of the job on this node, as the same user, in one network namespace, with the same COHORT_JOB"

// missing names the ranks that have not joined when ctx ended.
func missing(ctx context.Context, cfg *Config, lacks func(r int) bool) error {
	var list []int
	for r, rank := range cfg.Ranks {
		if lacks(r) {
			list = append(list, rank)
		}
	}
	return fmt.Errorf("%s did not join (%v); %s", backend.RankList(list), context.Cause(ctx), together)
}
