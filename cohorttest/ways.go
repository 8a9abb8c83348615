package cohorttest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort"
)

// way is a way to send or to receive a message.
type way[T any] struct {
	name   string
	posted bool // start begins the operation. Otherwise the call blocks, and ending makes it
	any    bool // takes a message from any rank with any tag
	probes bool // begins with a probe, which knows no type
	start  func(c *cohort.Comm, buf []T, peer, tag int) ending
}

// ending makes or ends the call.
type ending = func() (cohort.Status, error)

func waited(q *cohort.Request, err error) ending {
	return func() (cohort.Status, error) {
		if err != nil {
			return cohort.Status{}, err
		}
		return q.Wait()
	}
}

func ranOnce(p *cohort.Persistent, err error) ending {
	if err == nil {
		err = p.Start()
	}
	return func() (st cohort.Status, _ error) {
		if err == nil {
			st, err = p.Wait()
		}
		return st, errors.Join(err, p.Close())
	}
}

// viewOf returns a view with gaps that has the elements of buf.
func viewOf[T any](buf []T) cohort.View[T] {
	v, _ := strided[T](len(buf))
	_ = v.Unpack(buf) // the call reports a wrong type
	return v
}

// blocks is a way whose call blocks, posts one whose call begins the operation, and sets one by a persistent operation.
func blocks[T any](name string, call func(c *cohort.Comm, buf []T, peer, tag int) (cohort.Status, error)) way[T] {
	return way[T]{name: name, start: func(c *cohort.Comm, buf []T, peer, tag int) ending {
		return func() (cohort.Status, error) { return call(c, buf, peer, tag) }
	}}
}

func posts[T any](name string, start func(c *cohort.Comm, buf []T, peer, tag int) (*cohort.Request, error)) way[T] {
	return way[T]{name: name, posted: true, start: func(c *cohort.Comm, buf []T, peer, tag int) ending {
		return waited(start(c, buf, peer, tag))
	}}
}

func sets[T any](name string, setup func(c *cohort.Comm, buf []T, peer, tag int) (*cohort.Persistent, error)) way[T] {
	return way[T]{name: name, posted: true, start: func(c *cohort.Comm, buf []T, peer, tag int) ending {
		return ranOnce(setup(c, buf, peer, tag))
	}}
}

// isends and recvs are the simplest ways.
func isends[T any]() way[T] { return posts("Isend", cohort.Isend[T]) }
func recvs[T any]() way[T]  { return blocks("Recv", cohort.Recv[T]) }

func sendWays[T any]() []way[T] {
	type comm = *cohort.Comm
	sends := func(name string, send func(c comm, buf []T, to, tag int) error) way[T] {
		return blocks(name, func(c comm, buf []T, to, tag int) (st cohort.Status, err error) { return st, send(c, buf, to, tag) })
	}
	return []way[T]{
		sends("Send", cohort.Send[T]),
		sends("Ssend", cohort.Ssend[T]),
		sends("SendView", func(c comm, buf []T, to, tag int) error { return cohort.SendView(c, viewOf(buf), to, tag) }),
		blocks("Sendrecv", func(c comm, buf []T, to, tag int) (cohort.Status, error) {
			return cohort.Sendrecv(c, buf, to, tag, []T{}, cohort.ProcNull, 0)
		}),
		isends[T](),
		posts("Issend", cohort.Issend[T]),
		posts("IsendView", func(c comm, buf []T, to, tag int) (*cohort.Request, error) {
			return cohort.IsendView(c, viewOf(buf), to, tag)
		}),
		posts("Isendrecv", func(c comm, buf []T, to, tag int) (*cohort.Request, error) {
			return cohort.Isendrecv(c, buf, to, tag, []T{}, cohort.ProcNull, 0)
		}),
		sets("SendInit", cohort.SendInit[T]),
		sets("SsendInit", cohort.SsendInit[T]),
	}
}

// appends is the way to receive that needs no buffer.
const appends = "RecvAppend"

func recvWays[T any]() []way[T] {
	type comm = *cohort.Comm
	fromAny := func(w way[T]) way[T] {
		return way[T]{w.name + " from any rank", w.posted, true, w.probes, func(c comm, buf []T, _, _ int) ending {
			return w.start(c, buf, cohort.AnySource, cohort.AnyTag)
		}}
	}
	probes := func(name string, recv func(c comm, buf []T, from, tag int) (cohort.Status, error)) way[T] {
		w := blocks(name, recv)
		w.probes = true
		return w
	}
	matched := func(c comm, from, tag int, recv func(m *cohort.Message) ending) (cohort.Status, error) {
		m, st, err := c.Mprobe(from, tag)
		if err != nil {
			return st, err
		}
		return recv(m)()
	}
	recv, irecv := recvs[T](), posts("Irecv", cohort.Irecv[T])
	allocated := blocks(appends, func(c comm, buf []T, from, tag int) (cohort.Status, error) {
		got, st, err := cohort.RecvAppend[T](c, nil, from, tag)
		copy(buf, got)
		return st, err
	})
	probe := probes("Probe and Recv", func(c comm, buf []T, from, tag int) (cohort.Status, error) {
		probed, err := c.Probe(from, tag)
		if err != nil {
			return probed, err
		}
		st, err := cohort.Recv(c, buf, probed.Source, probed.Tag)
		if st.Source != probed.Source || st.Tag != probed.Tag || st.Bytes() != probed.Bytes() {
			err = errors.Join(err, fmt.Errorf("status %+v of Recv, %+v of Probe", st, probed))
		}
		return st, err
	})
	message := probes("MessageRecv", func(c comm, buf []T, from, tag int) (cohort.Status, error) {
		return matched(c, from, tag, func(m *cohort.Message) ending {
			return func() (cohort.Status, error) { return cohort.MessageRecv(m, buf) }
		})
	})
	return []way[T]{
		recv, fromAny(recv), irecv, fromAny(irecv), probe, fromAny(probe), message, fromAny(message),
		probes("ImessageRecv", func(c comm, buf []T, from, tag int) (cohort.Status, error) {
			return matched(c, from, tag, func(m *cohort.Message) ending { return waited(cohort.ImessageRecv(m, buf)) })
		}),
		blocks("Sendrecv", func(c comm, buf []T, from, tag int) (cohort.Status, error) {
			return cohort.Sendrecv(c, []T{}, cohort.ProcNull, 0, buf, from, tag)
		}),
		allocated, fromAny(allocated),
		blocks("RecvView", func(c comm, buf []T, from, tag int) (cohort.Status, error) {
			v := viewOf(buf)
			st, err := cohort.RecvView(c, v, from, tag)
			_ = v.Pack(buf)
			return st, err
		}),
		{name: "IrecvView", posted: true, start: func(c comm, buf []T, from, tag int) ending {
			v := viewOf(buf)
			end := waited(cohort.IrecvView(c, v, from, tag))
			return func() (cohort.Status, error) {
				st, err := end()
				_ = v.Pack(buf)
				return st, err
			}
		}},
		posts("Isendrecv", func(c comm, buf []T, from, tag int) (*cohort.Request, error) {
			return cohort.Isendrecv(c, []T{}, cohort.ProcNull, 0, buf, from, tag)
		}),
		sets("RecvInit", cohort.RecvInit[T]),
	}
}

// sending and receiving return the ways with these names.
func sending[T any](name string) way[T]   { return wayOf(sendWays[T](), name) }
func receiving[T any](name string) way[T] { return wayOf(recvWays[T](), name) }

func wayOf[T any](ways []way[T], name string) way[T] {
	return ways[slices.IndexFunc(ways, func(w way[T]) bool { return w.name == name })]
}

// exchange sends m elements to the next rank in one way, and receives as many from the previous rank in another, into
// room for more or fewer.
func exchange[T comparable](r *Rank, k kind[T], send, recv way[T], m, room, tag int) error {
	msg, got, want := newBuffer(k, m), newBuffer(k, room), newBuffer(k, room)
	for i := range msg.data {
		msg.data[i] = k.elem(value(m, r.Rank, i))
	}
	for i := range min(m, room) {
		want.data[i] = k.elem(value(m, r.prev, i))
	}
	in := recv.start(r.Comm, got.data, r.prev, tag)
	out := send.start(r.Comm, msg.data, r.next, tag)
	var st cohort.Status
	var err, sent error
	if recv.posted {
		_, sent = out()
		st, err = in()
	} else {
		st, err = in()
		_, sent = out()
	}
	what := fmt.Sprintf("%s of %d %s, %s into %d", send.name, m, k.name, recv.name, room)
	switch {
	case sent != nil:
		return fmt.Errorf("%s: %w", what, sent)
	case m > room && !strings.HasPrefix(recv.name, appends):
		r.Is(err, cohort.ErrTruncate, "%s", what)
		from := fmt.Sprintf("the message from rank %d with tag %d ", r.prev, tag)
		says(r, what, err, fmt.Sprintf("%shas %d elements, the buffer %d", from, m, room),
			fmt.Sprintf("%sis longer than the buffer of %d elements", from, room)) // with a library that does not report the length
		for i, x := range got.data { // it is not specified which part of the message is written
			if x == k.guard {
				want.data[i] = x
			}
		}
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	default:
		status[T](r, st, r.prev, tag, m, "%s", what)
	}
	got.is(r, want, "%s", what)
	return nil
}

// exchanges exchanges messages of the given lengths in all pairs of ways, or a sample of them. The buffers are longer by
// one of beside.
func exchanges[T comparable](r *Rank, k kind[T], beside []int, lengths ...int) {
	sends, recvs := sendWays[T](), recvWays[T]()
	for _, row := range r.rows(len(sends), len(recvs), len(lengths), len(beside)) {
		send, recv, m := sends[row[0]], recvs[row[1]], lengths[row[2]]
		if send.posted || recv.posted { // else a long message would wait for its receive
			r.OK(exchange(r, k, send, recv, m, max(m+beside[row[3]], 0), row[0]))
		}
	}
}

// refused checks that every way to send and to receive returns an error.
func refused[T any](r *Rank, c *cohort.Comm, peer, tag int, want error, what string) {
	for i, ways := range [][]way[T]{sendWays[T](), recvWays[T]()} {
		for _, w := range ways {
			wild := w.any || i == 1 && (tag == cohort.AnyTag || peer == cohort.AnySource)
			if wild && (want == cohort.ErrRank || want == cohort.ErrTag) || w.probes && want == cohort.ErrType {
				continue // it is right, or waits for a message
			}
			_, err := w.start(c, make([]T, 2), peer, tag)()
			r.Is(err, want, "%s %s", w.name, what)
		}
	}
}
