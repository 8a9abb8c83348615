package shmem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An Export passes a descriptor to other processes of the same user.
type Export struct {
	Name string // for Fetch
	ln   *net.UnixListener
	done chan struct{}
}

// NewExport exposes fd to n processes that fetch it by the export's name.
func NewExport(fd, n int) (*Export, error) {
	o := &Export{Name: fmt.Sprintf("@cohort/%d/%s", os.Geteuid(), rand.Text()), done: make(chan struct{})}
	var err error
	if o.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: o.Name, Net: "unix"}); err != nil {
		return nil, fmt.Errorf("exposing shared memory to other processes: %w", err)
	}
	go o.serve(fd, n)
	return o, nil
}

func (o *Export) serve(fd, n int) {
	defer close(o.done)
	defer o.ln.Close() // ends at once the calls that got no answer, for lack of descriptors for instance
	for n > 0 {
		c, err := o.ln.AcceptUnix()
		if err != nil {
			return // closed
		}
		if uid, _, err := PeerOf(c); err == nil && uid == os.Geteuid() {
			c.SetDeadline(time.Now().Add(time.Second)) // for one byte into an empty socket
			if _, _, err := c.WriteMsgUnix([]byte{1}, unix.UnixRights(fd), nil); err == nil {
				n--
			}
		}
		c.Close()
	}
}

// Close ends the export. The descriptor is the caller's again.
func (o *Export) Close() {
	o.ln.Close()
	<-o.done
}

// Fetch returns the descriptor that another process exposes.
func Fetch(ctx context.Context, name string) (int, error) {
	fail := func(err error) (int, error) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return -1, fmt.Errorf("getting shared memory from another rank: %w", err)
	}
	c, err := dial(ctx, name)
	if err != nil {
		return fail(err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if uid, _, err := PeerOf(c); err != nil || uid != os.Geteuid() {
		return fail(fmt.Errorf("its socket belongs to user %d, not to this user (%d) (%v)", uid, os.Geteuid(), err))
	}
	b := make([]byte, 1)
	n, fd, err := ReceiveFD(c, b)
	if err == nil && (n == 0 || b[0] != 1 || fd < 0) {
		if fd >= 0 {
			unix.Close(fd)
		}
		err = errors.New("the other rank has withdrawn it")
	}
	if err != nil {
		return fail(err)
	}
	return fd, nil
}

// dial connects to an export. While many processes connect at once its queue may be full for a
// moment.
func dial(ctx context.Context, name string) (*net.UnixConn, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
		if !errors.Is(err, unix.EAGAIN) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// ReceiveFD reads from a socket, and returns the descriptor that came with the bytes, -1 if none did.
func ReceiveFD(c *net.UnixConn, b []byte) (n, fd int, err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return 0, -1, err
	}
	msgs, _ := unix.ParseSocketControlMessage(oob[:oobn])
	for _, m := range msgs {
		fds, _ := unix.ParseUnixRights(&m)
		if len(fds) == 1 {
			return n, fds[0], nil
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return n, -1, fmt.Errorf("no descriptor is left for shared memory; raise the limit (ulimit -n): %w", unix.EMFILE)
	}
	return n, -1, nil
}

// PeerOf returns the user and the process at the other end of a socket.
func PeerOf(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, 0, err
	}
	var cred *unix.Ucred
	err2 := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, err2); err != nil {
		return -1, 0, err
	}
	return int(cred.Uid), int(cred.Pid), nil
}
