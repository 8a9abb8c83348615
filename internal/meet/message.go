package meet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// send writes a frame within a time.
func (c *Conn) send(kind frame.Kind, payload []byte, limit time.Duration) error {
	h := frame.Header{Kind: kind, Length: uint64(len(payload))}
	if len(payload) > 0 {
		h.Flags, h.Sum = frame.FlagSummed, frame.Sum(0, payload)
	}
	var head [frame.HeaderSize]byte
	c.Enc.Encode(&head, &h)
	c.SetWriteDeadline(time.Now().Add(limit))
	// The table of a large job is long, and goes to every rank: it is not copied.
	parts := net.Buffers{head[:], payload}
	if len(payload) == 0 {
		parts = parts[:1]
	}
	if _, err := parts.WriteTo(c.Conn); err != nil {
		return err
	}
	return c.SetWriteDeadline(time.Time{})
}

// receive reads a frame with a payload of at most limit bytes, and no byte beyond it.
func (c *Conn) receive(limit uint64) (frame.Kind, []byte, error) {
	c.Dec.Limit = limit
	var head [frame.HeaderSize]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	var h frame.Header
	if err := c.Dec.Decode(&h, &head); err != nil {
		return 0, nil, err
	}
	payload := make([]byte, h.Payload())
	if _, err := io.ReadFull(c, payload); err != nil {
		return 0, nil, err
	}
	return h.Kind, payload, h.CheckSum(frame.Sum(0, payload))
}

// Agree gives the dialing end the settings of the accepting one, encoded as JSON, that both must have before
// messages use the connection. It ends when ctx does.
func (c *Conn) Agree(ctx context.Context, settings any) error {
	doing := "sending settings to"
	err := within(ctx, c, func() error {
		if !c.Dialed {
			return c.send(frame.Agree, encode(settings), HandshakeTimeout)
		}
		doing = "receiving settings from"
		kind, payload, err := c.receive(maxSettings)
		if err == nil && kind != frame.Agree {
			err = fmt.Errorf("it sent %q", kind)
		}
		if err == nil {
			err = json.Unmarshal(payload, settings)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", doing, who(c.Rank), err)
	}
	return nil
}

// within calls f, whose reads and writes of c end when ctx does, and leaves c without a deadline.
func within(ctx context.Context, c net.Conn, f func() error) error {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		c.SetDeadline(time.Unix(1, 0))
	})
	err := f()
	if !stop() {
		<-over
		if timedOut(err) {
			err = backend.Harmless(context.Cause(ctx))
		}
	}
	c.SetDeadline(time.Time{})
	return err
}

// timedOut reports whether a deadline that this process set ended a read or write.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// ended returns the error of an operation that ctx ended.
func ended(ctx context.Context, format string, facts ...any) error {
	sentinel := backend.ErrCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		sentinel = backend.ErrTimeout
	}
	return backend.Faultf(sentinel, format, facts...)
}
