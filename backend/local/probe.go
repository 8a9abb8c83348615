package local

import (
	"runtime"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// Probe implements backend.Comm.
func (c *Comm) Probe(b *backend.Bound, source, tag int, block bool) (backend.Status, bool, error) {
	m, st, err := c.probe(b, source, tag, block, false)
	return st, m != nil, err
}

// Mprobe implements backend.Comm. The message is the sender's record, or the
// copy, in the queue of held messages.
func (c *Comm) Mprobe(b *backend.Bound, source, tag int, block bool) (backend.Matched, backend.Status, bool, error) {
	m, st, err := c.probe(b, source, tag, block, true)
	return m, st, m != nil, err
}

// probe returns the message that a probe finds; nil if there is none and block is false.
func (c *Comm) probe(b *backend.Bound, source, tag int, block, hold bool) (m backend.Matched, st backend.Status, err error) {
	env := c.pattern(source, tag)
	if m, st, err = c.look(env, hold); m != nil || err != nil {
		return m, st, err
	}
	if !block {
		runtime.Gosched() // a caller that probes in a loop needs the sender to run
		return nil, st, nil
	}
	o := c.op(nil)
	o.node.Env, o.send = env, false
	defer c.release(o)
	for m == nil && err == nil {
		if err = c.sleep(b, (*probe)(o)); err != nil {
			return nil, st, o.explain(err)
		}
		m, st, err = c.look(env, hold)
	}
	return m, st, err
}

// probe is a blocking probe. It is ready if there is a message, or can be none.
type probe op

// Ready implements backend.Pending.
func (p *probe) Ready() bool {
	m, _, err := p.c.look(p.node.Env, false)
	return m != nil || err != nil
}

// look finds the message that matches env. With hold it takes the message out of the
// queue.
func (c *Comm) look(env match.Env, hold bool) (backend.Matched, backend.Status, error) {
	me, absent := c.me, c.group.absent(c.rank, env) // a rank may have sent it before it left
	me.lock()
	defer me.mu.Unlock()
	if err := c.unusable(); err != nil {
		return nil, backend.Status{}, err
	}
	n := me.arrived.FindArrived(env)
	if n == nil {
		return nil, backend.Status{}, c.group.absence(absent, env)
	}
	m := owner(n)
	if hold {
		me.arrived.Remove(n)
		me.held.Push(n)
	}
	st, _ := c.group.received(n.Env, len(m.buf), len(m.buf))
	return m, st, nil
}

// Imrecv implements backend.Comm.
func (c *Comm) Imrecv(r *backend.Request, matched backend.Matched, buf []byte) {
	o := c.request(r, buf)
	m := matched.(*op)
	c.me.lock()
	err := c.unusable()
	if err == nil && !c.me.held.Remove(&m.node) {
		if err = c.group.left(c.group.RankOf(int(m.node.Env.Source))); m.gone {
			err = backend.TookBack
		}
	}
	if err != nil {
		c.me.mu.Unlock()
		o.complete(backend.Status{}, err)
		return
	}
	o.complete(c.take(m, buf))
}
