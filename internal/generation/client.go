package generation

import (
	"bufio"
	"cmp"
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

// Client is a process's side of its launcher. One goroutine at a time may Enter.
type Client struct {
	send func(Request) error

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when something below has changed
	entry   entry
	shared  *string       // by rank 0 of the last place
	resized chan struct{} // closed when the world that this process is in is to have another size
	told    bool          // it is closed
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
	var mu sync.Mutex
	to := json.NewEncoder(conn)
	c = NewClient(func(r Request) error {
		mu.Lock()
		defer mu.Unlock()
		return to.Encode(r)
	})
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

// fail says why there is no further place, unless the launcher has said so.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entry.fail(err)
	c.wake()
}

func (c *Client) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Got handles a message from the launcher. It does not block.
func (c *Client) Got(m Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.Place != nil:
		c.shared = nil
	case m.Go:
		c.resized, c.told = make(chan struct{}), false
	case m.Shared != nil:
		c.shared = m.Shared
	case m.Resize && !c.told:
		c.told = true
		close(c.resized)
	case m.Alive:
		go c.send(Request{Alive: true})
	}
	c.entry.got(m)
	c.wake()
}

// await waits until ready, which is called with the mutex held.
func (c *Client) await(ctx context.Context, ready func() bool) error {
	for {
		c.mu.Lock()
		ok, err, changed := ready(), c.entry.err, c.changed
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

// Attempt is a world that a process is connected with, but does not use yet.
type Attempt struct {
	Leave func()       // ends it
	Lost  func() []int // returns the ranks that count as lost
}

// Enter enters the next world: it asks for a place, has open connect this process with the others, and returns when all of
// them are connected. Until then no rank may use the connections. If not all can be, Enter begins again. lost returns the
// ranks of the present world that count as lost; it may be nil.
//
// Errors: ErrTimeout or ErrCanceled, which name the ranks that have not asked; ErrPeerLost if the others count this rank
// as lost; ErrClosed if the job shrinks and this rank leaves it; those of open.
func (c *Client) Enter(ctx context.Context, lost func() []int, open func(context.Context, Place) (*Attempt, error)) error {
	if lost == nil {
		lost = func() []int { return nil }
	}
	c.mu.Lock()
	c.entry.begin()
	c.mu.Unlock()
	var attempt *Attempt
	ended := ctx.Done()
	for {
		known, gone := lost(), attempt != nil && len(attempt.Lost()) > 0
		c.mu.Lock()
		send := c.entry.step(ctx.Err() != nil, gone, known)
		at, place, changed := c.entry.at, c.entry.place, c.changed
		c.mu.Unlock()
		for _, r := range send {
			if err := c.send(r); err != nil {
				c.fail(backend.Faultf(backend.ErrPeerLost, "the launcher is gone: %v", err))
			}
		}
		if attempt != nil && (at == asks || at == outside) {
			go attempt.Leave() // without waiting: some of the ranks do not answer
			attempt = nil
		}
		switch at {
		case inside:
			return nil
		case outside:
			return c.why(ctx)
		case connects:
			joining, cancel := c.joining(ctx)
			var err error
			attempt, err = open(joining, place)
			cancel()
			c.mu.Lock()
			c.entry.opened(err)
			c.mu.Unlock()
			continue
		}
		select {
		case <-changed:
		case <-ended:
			ended = nil // step knows it
		case <-time.After(lookEvery): // at what is lost
		}
	}
}

// why returns why this process has no place.
func (c *Client) why(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &c.entry
	if e.err != nil {
		return e.err
	}
	over := (&backend.Bound{Ctx: ctx}).Err(time.Now())
	if e.missing != nil {
		return fmt.Errorf("%w; not there yet: %s", over, backend.RankList(e.missing[1:]))
	}
	return cmp.Or(over, e.failure) // the end of the time may be why it could not connect
}

// joining returns a context that ends when not all ranks of the last place can join any more.
func (c *Client) joining(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_ = c.await(ctx, func() bool { return c.entry.broken })
		cancel()
	}()
	return ctx, cancel
}

// Share returns on every rank of the last place the text that its rank 0 gives.
func (c *Client) Share(ctx context.Context, rank int, text string) (string, error) {
	if rank == 0 {
		return text, c.send(Request{Share: &text})
	}
	err := c.await(ctx, func() bool { return c.shared != nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return "", err
	}
	return *c.shared, nil
}

// Resized returns a channel that is closed when the world that this process has entered is to have another size.
func (c *Client) Resized() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resized
}
