package generation

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// Env is the variable by which a process of the job finds its launcher: "ID SOCKET".
const Env = "COHORT_GENERATIONS"

// Client is a process's side of its launcher. One goroutine at a time may Ask or Share.
type Client struct {
	send func(Request) error

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when something below has changed
	place   *Place        // the answer to Ask, until it is taken
	missing []int         // the answer to Withdraw
	shared  *string
	ready   bool          // all ranks of the last place have joined
	broken  string        // why they cannot
	resized chan struct{} // closed when the world of the last place is to have another size
	told    bool          // it is closed
	err     error         // why there is no further place
}

// NewClient returns a client that sends by a function. Got receives the answers.
func NewClient(send func(Request) error) *Client {
	return &Client{send: send, changed: make(chan struct{}), resized: make(chan struct{})}
}

// Dial returns the client of this process, and the number that its launcher knows it by. value is that of Env.
func Dial(value string) (c *Client, id int, err error) {
	number, path, _ := strings.Cut(value, " ")
	fail := func(err error) (*Client, int, error) {
		return nil, 0, backend.Faultf(backend.ErrInit, "the launcher cannot be reached (%s=%s): %v", Env, value, err)
	}
	if id, err = strconv.Atoi(number); err != nil {
		return fail(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return fail(err)
	}
	if _, err := fmt.Fprintln(conn, id); err != nil {
		return fail(err)
	}
	to := json.NewEncoder(conn)
	c = NewClient(func(r Request) error { return to.Encode(r) })
	go func() {
		from := json.NewDecoder(bufio.NewReader(conn))
		for {
			var m Message
			if err := from.Decode(&m); err != nil {
				_ = conn.Close()
				c.fail(backend.Faultf(backend.ErrPeerLost, "the launcher is gone, or takes another process for this one: %v", err))
				return
			}
			c.Got(m)
		}
	}()
	return c, id, nil
}

func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.wake()
}

func (c *Client) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Got handles a message from the launcher.
func (c *Client) Got(m Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.Place != nil:
		c.place, c.missing, c.shared, c.ready, c.broken, c.resized, c.told = m.Place, nil, nil, false, "", make(chan struct{}), false
	case m.Out != "" && m.Left:
		c.err = &backend.Fault{Sentinel: backend.ErrClosed, Text: m.Out}
	case m.Out != "":
		c.err = &backend.Fault{Sentinel: backend.ErrPeerLost, Text: m.Out}
	case m.Shared != nil:
		c.shared = m.Shared
	case m.Go:
		c.ready = true
	case m.Broken != "":
		c.broken = m.Broken
	case m.Resize && !c.told:
		c.told = true
		close(c.resized)
	case m.Missing != nil:
		c.missing = m.Missing
	}
	c.wake()
}

// await waits until ready, which is called with the mutex held.
func (c *Client) await(ctx context.Context, ready func() bool) error {
	for {
		c.mu.Lock()
		ok, err, changed := ready(), c.err, c.changed
		c.mu.Unlock()
		switch {
		case ok:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lookEvery is the time between looks at which ranks count as lost.
const lookEvery = 200 * time.Millisecond

// Ask asks for a place in the next world, and waits for it until ctx ends. lost returns the ranks that count as lost; it
// may be nil.
//
// Errors: ErrTimeout or ErrCanceled, which name the ranks that have not asked; ErrPeerLost if the others count this rank
// as lost; ErrClosed if the job shrinks and this rank leaves it.
func (c *Client) Ask(ctx context.Context, lost func() []int) (Place, error) {
	var a Ask
	if lost != nil {
		a.Lost = lost()
	}
	if err := c.send(Request{Ask: &a}); err != nil {
		return Place{}, c.unsent(err)
	}
	placed := func() bool { return c.place != nil }
	var err error
	for known := len(a.Lost); ; {
		look, cancel := ctx, context.CancelFunc(func() {})
		if lost != nil {
			look, cancel = context.WithTimeout(ctx, lookEvery)
		}
		err = c.await(look, placed)
		cancel()
		if err == nil || err != look.Err() || ctx.Err() != nil {
			break
		}
		if all := lost(); len(all) > known {
			known = len(all)
			if err := c.send(Request{Lost: all}); err != nil {
				return Place{}, c.unsent(err)
			}
		}
	}
	if err != nil && ctx.Err() != nil {
		if err := c.send(Request{Withdraw: true}); err != nil {
			return Place{}, c.unsent(err)
		}
		err = c.await(context.WithoutCancel(ctx), func() bool { return c.place != nil || c.missing != nil })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.place != nil {
		p := *c.place
		c.place = nil
		return p, nil
	}
	if c.missing != nil {
		err = fmt.Errorf("%w; not there yet: %s", (&backend.Bound{Ctx: ctx}).Err(time.Now()), named(c.missing[1:]))
		c.missing = nil
	}
	return Place{}, err
}

// named returns ranks for a message: "rank 2", "ranks 1, 2".
func named(ranks []int) string {
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(ranks), " ", ", "), "[]")
	if len(ranks) == 1 {
		return "rank " + list
	}
	return "ranks " + list
}

// unsent returns why a request could not be sent: the launcher may have said so before.
func (c *Client) unsent(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return backend.Faultf(backend.ErrPeerLost, "the launcher is gone: %v", err)
}

// Joining returns a context that ends when not all ranks of the last place can join any more.
func (c *Client) Joining(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		if c.await(ctx, func() bool { return c.broken != "" }) == nil {
			cancel()
		}
	}()
	return ctx, cancel
}

// Joined tells the launcher whether this process is connected with all ranks of the last place, and reports whether all
// of them are. Where one is not, no rank may use the connections. When ctx ends, this process counts as one that is not,
// unless all had joined before.
func (c *Client) Joined(ctx context.Context, connected bool) (all bool, err error) {
	over := func() bool { return c.ready || c.broken != "" }
	if connected {
		if err := c.send(Request{Joined: true}); err != nil {
			return false, c.unsent(err)
		}
		err = c.await(ctx, over)
	}
	if !connected || err != nil && ctx.Err() != nil {
		if err := c.send(Request{Failed: true}); err != nil {
			return false, c.unsent(err)
		}
		err = c.await(context.WithoutCancel(ctx), over)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready, err
}

// Share returns on every rank of the last place the text that its rank 0 gives.
func (c *Client) Share(ctx context.Context, rank int, text string) (string, error) {
	if rank == 0 {
		if err := c.send(Request{Share: &text}); err != nil {
			return "", c.unsent(err)
		}
		return text, nil
	}
	err := c.await(ctx, func() bool { return c.shared != nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return "", err
	}
	return *c.shared, nil
}

// Resized returns a channel that is closed when the world of the last place is to have another size.
func (c *Client) Resized() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resized
}
