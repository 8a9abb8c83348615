package node

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
// the meeting; both ends check the other's user. Every message has a fixed size and is read with a deadline.
//
//	rank r → 0   hello: greeting, rank, size, process id
//	0 → rank r   1 and the segment's size with its descriptor, or 0 and a text, or 2 and a text for lack of memory
//	rank r → 0   mapped: its part of the control area is filled in; or why not, in the same form
//	0 → rank r   all have mapped: try copies, watch the others
//	rank r → 0   done
//	0 → rank r   start
const (
	greeting  = "cohort-node1\n"
	helloSize = 32
	replySize = 512
	// refuseLimit is how long rank 0 waits for the other ranks, to tell them that the job cannot start.
	refuseLimit = 2 * time.Second
)

func address(name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("@cohort-node/%d/%x", os.Geteuid(), sum[:16])
}

func join(ctx context.Context, cfg *Config, l layout) (*shmem.Segment, error) {
	if l.n == 1 {
		return create(cfg, l)
	}
	if cfg.Rank == 0 {
		return serve(ctx, cfg, l)
	}
	return attach(ctx, cfg, l)
}

func create(cfg *Config, l layout) (*shmem.Segment, error) {
	seg, err := shmem.CreateSparse("cohort-node", l.size, l.start)
	if err != nil {
		return nil, &backend.Fault{Sentinel: backend.ErrAlloc, Text: err.Error()}
	}
	c := shmem.At[control](seg, 0)
	c.magic, c.ranks, c.size = magic, uint32(l.n), uint64(l.size)
	area(seg, l, cfg.Rank).fill()
	return seg, nil
}

// serve is rank 0's part.
func serve(ctx context.Context, cfg *Config, l layout) (seg *shmem.Segment, err error) {
	conns := make([]*net.UnixConn, l.n)
	defer func() {
		for _, c := range conns {
			if c == nil {
				continue
			}
			if err != nil {
				c.SetDeadline(time.Now().Add(time.Second))
				c.Write(refusal(err))
			}
			c.Close()
		}
		if err != nil && seg != nil {
			seg.Close()
			seg = nil
		}
	}()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: address(cfg.Name), Net: "unix"})
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("another process is rank %d of job %q already; start one rank %[1]d per job, and give each job its own COHORT_JOB", cfg.Ranks[0], cfg.Job)
		}
		return nil, tooMany(err, cfg)
	}
	defer ln.Close()
	stop := context.AfterFunc(ctx, func() { ln.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	err = tooMany(nil, cfg)
	if err == nil {
		seg, err = create(cfg, l)
	}
	if err != nil {
		refuse(ln, l.n-1, err)
		return seg, err
	}
	pids := map[int]int{}
	for len(pids) < l.n-1 {
		c, err := ln.AcceptUnix()
		if errors.Is(err, syscall.EMFILE) {
			err = tooMany(err, cfg)
		}
		if err != nil {
			return seg, waitError(ctx, err, "have not joined", func(r int) bool { return conns[r] != nil || r == 0 }, cfg)
		}
		rank, pid, err := readHello(ctx, c, cfg)
		if err == nil && conns[rank] != nil {
			err = fmt.Errorf("another process is rank %d already (process %d)", cfg.Ranks[rank], pids[rank])
		}
		if err != nil { // not a rank of this job: answer and go on
			c.SetDeadline(time.Now().Add(time.Second))
			c.Write(reply(err.Error()))
			c.Close()
			continue
		}
		conns[rank], pids[rank] = c, pid
		if d, ok := ctx.Deadline(); ok {
			c.SetDeadline(d)
		}
	}
	// No one else may join. A rank that has started may join the next job of this name, and must not
	// find this one's socket.
	ln.Close()
	hurry := context.AfterFunc(ctx, func() {
		for _, c := range conns[1:] {
			c.SetDeadline(time.Unix(1, 0))
		}
	})
	defer hurry()
	ok := make([]byte, replySize)
	ok[0] = 1
	binary.LittleEndian.PutUint64(ok[1:], uint64(l.size))
	rights := unix.UnixRights(seg.FD())
	gone := func(r int) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("rank %d ended while the job was joining", cfg.Ranks[r])
	}
	for r, c := range conns[1:] {
		if _, _, err := c.WriteMsgUnix(ok, rights, nil); err != nil {
			return seg, gone(r + 1)
		}
	}
	step := func(mine func() error) error {
		if err := expectAll(ctx, conns, cfg); err != nil {
			return err
		}
		for r, c := range conns[1:] {
			if _, err := c.Write([]byte{1}); err != nil {
				return gone(r + 1)
			}
		}
		return mine()
	}
	if err := step(func() error { noteCopy(seg, cfg, l); return nil }); err != nil {
		return seg, err
	}
	return seg, step(func() error { return nil })
}

// refuse answers ranks, as they connect, that the job cannot start, and why. They would otherwise
// wait for a rank 0 that has ended.
func refuse(ln *net.UnixListener, ranks int, why error) {
	ln.SetDeadline(time.Now().Add(refuseLimit))
	for range ranks {
		c, err := ln.AcceptUnix()
		if err != nil {
			return // no rank came, or no descriptor is left
		}
		c.SetDeadline(time.Now().Add(time.Second))
		io.ReadFull(c, make([]byte, helloSize)) // closing with unread data would discard the answer
		c.Write(refusal(why))
		c.Close()
	}
}

// tooMany returns err, or what to do about it if there are too few descriptors: one more for the
// segment, and one for every other rank, first for its connection and then for its watch.
func tooMany(err error, cfg *Config) error {
	if err != nil && !errors.Is(err, syscall.EMFILE) {
		return err
	}
	if e := shmem.Files(len(cfg.Ranks), jobOf(cfg)); e != nil {
		return e
	}
	return err
}

func jobOf(cfg *Config) string { return fmt.Sprintf("a job of %d ranks", len(cfg.Ranks)) }

// attach is the part of the other ranks.
func attach(ctx context.Context, cfg *Config, l layout) (*shmem.Segment, error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	switch uid, pid, err := shmem.PeerOf(c); {
	case err != nil:
		return nil, err
	case uid != os.Geteuid():
		return nil, fmt.Errorf("the socket of job %q belongs to user %d, not to this user (%d)", cfg.Job, uid, os.Geteuid())
	case cfg.PIDs != nil && pid != cfg.PIDs[0]:
		return nil, fmt.Errorf("the socket of job %q belongs to process %d, not to rank %d (process %d)", cfg.Job, pid, cfg.Ranks[0], cfg.PIDs[0])
	}
	hello := make([]byte, helloSize)
	copy(hello, greeting)
	binary.LittleEndian.PutUint32(hello[16:], uint32(cfg.Rank))
	binary.LittleEndian.PutUint32(hello[20:], uint32(l.n))
	binary.LittleEndian.PutUint64(hello[24:], uint64(os.Getpid()))
	if _, err := c.Write(hello); err != nil {
		return nil, err
	}
	var seg *shmem.Segment
	if err = tooMany(nil, cfg); err == nil {
		seg, err = receive(c, cfg, l)
	}
	if err != nil {
		c.Write(refusal(err)) // rank 0 passes it on to all
		return nil, err
	}
	area(seg, l, cfg.Rank).fill()
	for i := range 2 { // mapped; done
		if i == 1 {
			noteCopy(seg, cfg, l)
		}
		if err := handshake(c, cfg); err != nil {
			seg.Close()
			return nil, err
		}
	}
	return seg, nil
}

// receive maps the segment that rank 0 sends.
func receive(c *net.UnixConn, cfg *Config, l layout) (*shmem.Segment, error) {
	fd, err := readReply(c, cfg, l.size)
	if err != nil {
		return nil, err
	}
	seg, err := shmem.OpenSparse(fd, l.size, l.start)
	if errors.Is(err, syscall.ENOMEM) {
		return nil, &backend.Fault{Sentinel: backend.ErrAlloc, Text: err.Error()}
	}
	if err != nil {
		return nil, err
	}
	if ctl := shmem.At[control](seg, 0); ctl.magic != magic || ctl.ranks != uint32(l.n) || ctl.size != uint64(l.size) {
		seg.Close()
		return nil, fmt.Errorf("rank %d runs another version of cohort", cfg.Ranks[0])
	}
	return seg, nil
}

// noteCopy tries copies to and from the next rank and records a failure.
func noteCopy(seg *shmem.Segment, cfg *Config, l layout) {
	if cfg.NoCopies || area(seg, l, (cfg.Rank+1)%l.n).tryCopy() != nil {
		shmem.At[control](seg, 0).noCMA.Store(1)
	}
}

// dial connects to rank 0, which may not be listening yet.
func dial(ctx context.Context, cfg *Config) (*net.UnixConn, error) {
	name := address(cfg.Name)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.EAGAIN) {
			return nil, tooMany(err, cfg)
		}
		// A rank 0 with as few descriptors may have ended without being able to answer.
		if err := shmem.Files(len(cfg.Ranks)+1, jobOf(cfg)); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, waitError(ctx, err, "", nil, cfg)
		case <-time.After(pause):
		}
	}
}

// readHello checks a connection: the user, then the greeting.
func readHello(ctx context.Context, c *net.UnixConn, cfg *Config) (rank, pid int, err error) {
	uid, pid, err := shmem.PeerOf(c)
	if err != nil {
		return 0, 0, err
	}
	if uid != os.Geteuid() {
		return 0, 0, fmt.Errorf("user %d is not the job's user", uid)
	}
	d := time.Now().Add(5 * time.Second)
	if end, ok := ctx.Deadline(); ok && end.Before(d) {
		d = end
	}
	c.SetDeadline(d)
	hello := make([]byte, helloSize)
	if _, err := io.ReadFull(c, hello); err != nil {
		return 0, 0, err
	}
	if string(hello[:len(greeting)]) != greeting || [3]byte(hello[len(greeting):16]) != [3]byte{} {
		return 0, 0, errors.New("not a rank of this version of cohort")
	}
	r, size := binary.LittleEndian.Uint32(hello[16:]), binary.LittleEndian.Uint32(hello[20:])
	if int64(size) != int64(len(cfg.Ranks)) {
		return 0, 0, fmt.Errorf("rank %d was started for %d ranks, rank 0 for %d", r, size, len(cfg.Ranks))
	}
	if r < 1 || r >= size {
		return 0, 0, fmt.Errorf("there is no rank %d in a job of %d", r, size)
	}
	if own := binary.LittleEndian.Uint64(hello[24:]); own != uint64(pid) {
		return 0, 0, fmt.Errorf("rank %d is in another PID namespace (it is process %d there and %d here)", r, own, pid)
	}
	if cfg.PIDs != nil && pid != cfg.PIDs[r] {
		return 0, 0, fmt.Errorf("process %d is not rank %d (process %d)", pid, cfg.Ranks[r], cfg.PIDs[r])
	}
	return int(r), pid, nil
}

func reply(text string) []byte {
	b := make([]byte, replySize)
	copy(b[1:], text)
	return b
}

// refusal is reply for a job that cannot start. Lack of memory has the same sentinel on every rank.
func refusal(why error) []byte {
	var f *backend.Fault
	if !errors.As(why, &f) || f.Sentinel != backend.ErrAlloc {
		return reply(why.Error())
	}
	b := reply(f.Text)
	b[0] = 2
	return b
}

// readReply reads rank 0's answer: the segment's descriptor or an error.
func readReply(c *net.UnixConn, cfg *Config, size int) (fd int, err error) {
	b := make([]byte, replySize)
	n, fd, err := shmem.ReceiveFD(c, b)
	if errors.Is(err, syscall.EMFILE) {
		return -1, err
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err == nil {
		_, err = io.ReadFull(c, b[n:])
	}
	if err == nil && b[0] == 1 && fd >= 0 && binary.LittleEndian.Uint64(b[1:]) == uint64(size) {
		return fd, nil
	}
	if fd >= 0 {
		unix.Close(fd)
	}
	if err != nil {
		return -1, fmt.Errorf("rank %d ended while the job was joining: %w", cfg.Ranks[0], err)
	}
	return -1, refused(cfg.Ranks[0], " refused", b)
}

// refused is the error for a refusal that a rank sent instead of its next message.
func refused(rank int, did string, b []byte) error {
	text, _, _ := strings.Cut(string(b[1:]), "\x00")
	switch text = fmt.Sprintf("rank %d%s: %s", rank, did, text); b[0] {
	case 0:
		return errors.New(text)
	case 2:
		return &backend.Fault{Sentinel: backend.ErrAlloc, Text: text}
	}
	return fmt.Errorf("rank %d runs another version of cohort", rank)
}

// expectAll reads from every rank that it has done a step.
func expectAll(ctx context.Context, conns []*net.UnixConn, cfg *Config) error {
	b := make([]byte, replySize)
	for r, c := range conns[1:] {
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
				return waitError(ctx, err, "have not joined", func(q int) bool { return q != r+1 }, cfg)
			}
			return fmt.Errorf("rank %d ended while the job was joining", cfg.Ranks[r+1])
		}
		if b[0] != 1 {
			n, _ := io.ReadFull(c, b[1:])
			return refused(cfg.Ranks[r+1], "", b[:1+n])
		}
	}
	return nil
}

// handshake reports to rank 0 that a step is done and waits for its answer.
func handshake(c *net.UnixConn, cfg *Config) error {
	c.Write([]byte{1}) // an error shows in the read
	b := make([]byte, replySize)
	if _, err := io.ReadFull(c, b[:1]); err != nil {
		return fmt.Errorf("rank %d ended while the job was joining: %w", cfg.Ranks[0], err)
	}
	if b[0] == 1 {
		return nil
	}
	n, _ := io.ReadFull(c, b[1:])
	return refused(cfg.Ranks[0], " gave up", b[:1+n])
}

// waitError names the missing ranks, or the reason why the context ended.
func waitError(ctx context.Context, err error, what string, here func(int) bool, cfg *Config) error {
	if ctx.Err() == nil {
		return err
	}
	why := "in time"
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		why = "before the deadline"
	}
	if here == nil {
		return fmt.Errorf("rank %d did not appear %s (%v); start all ranks of the job on this node, as the same user, with the same COHORT_JOB",
			cfg.Ranks[0], why, context.Cause(ctx))
	}
	var missing []string
	for r, rank := range cfg.Ranks {
		if !here(r) {
			missing = append(missing, fmt.Sprint(rank))
		}
	}
	return fmt.Errorf("ranks %s %s %s (%v)", strings.Join(missing, ", "), what, why, context.Cause(ctx))
}
