package wire

import (
	"context"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/internal/frame"
)

// SendSettings sends the other end settings that both must agree on before messages use the
// connection. It and ReceiveSettings are called by one goroutine, and end when ctx does.
func (c *Conn) SendSettings(ctx context.Context, text []byte) error {
	return c.within(ctx, func() error { return c.send(frame.Agree, text, time.Now().Add(HandshakeTimeout)) })
}

// ReceiveSettings receives the other end's settings, of at most limit bytes.
func (c *Conn) ReceiveSettings(ctx context.Context, limit uint64) (text []byte, err error) {
	err = c.within(ctx, func() error {
		kind, payload, err := c.receive(limit)
		if err == nil && kind != frame.Agree {
			err = fmt.Errorf("%s sent %q, want its settings", who(c.Rank), kind)
		}
		text = payload
		return err
	})
	return text, err
}

// within ends f's wait when ctx ends.
func (c *Conn) within(ctx context.Context, f func() error) error {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		c.SetReadDeadline(time.Unix(1, 0))
	})
	err := f()
	if !stop() {
		<-over
		if err == nil || timedOut(err) {
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("agreeing on settings with %s: %w", who(c.Rank), err)
	}
	return nil
}
