package wire

import (
	"context"
	"fmt"
	"time"
)

// Say sends the rank at the other end something that the two have to agree on before messages go
// over the connection. It and Hear are for one goroutine, and end with ctx.
func (c *Conn) Say(ctx context.Context, text []byte) error {
	return c.within(ctx, func() error { return c.send(agree, text, time.Now().Add(HandshakeTimeout)) })
}

// Hear receives what the other end says, of limit bytes at most.
func (c *Conn) Hear(ctx context.Context, limit uint64) (text []byte, err error) {
	err = c.within(ctx, func() error {
		kind, payload, err := c.receive(limit)
		if err == nil && kind != agree {
			err = fmt.Errorf("%s sends %q before the two have agreed on how to go on", who(c.Rank), kind)
		}
		text = payload
		return err
	})
	return text, err
}

// within ends what f waits for with ctx.
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
		return fmt.Errorf("agreeing with %s: %w", who(c.Rank), err)
	}
	return nil
}
