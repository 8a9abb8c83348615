package tasks

import (
	"context"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/values"
)

// answer is the result of a worker's task.
type answer struct {
	kind kind
	body []byte
}

// serve runs tasks on a rank other than 0 until rank 0 stops it.
func serve[In, Out any](ctx context.Context, c *cohort.Comm, do func(context.Context, In) (Out, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := c.Group()
	in := newInbox()
	listen := func() { go in.listen(c, 0, func(k kind) bool { return k == stopWork }) }
	finished := make(chan answer, 1)
	busy, index := false, -1 // index is that of the last task
	var last answer          // to the last task
	defer func() {
		if busy {
			cancel()
			<-finished
		}
		close(in.closed)
		c.Close()
	}()
	listen()
	for {
		var err error
		select {
		case m := <-in.messages:
			switch {
			case m.on != c: // which has lost a rank
			case m.err != nil:
				err = m.err
			case m.kind == stopWork:
				if busy {
					cancel()
					last = <-finished // rank 0 asks again if a loss interrupts the stop
					busy = false
				}
				if err = send(c, 0, goodbye, 0, nil); err == nil {
					return nil
				}
			case m.index != index:
				busy, index = true, m.index
				go func() {
					body, _ := values.Encode(failure{Text: "the function ended its goroutine"}) // by runtime.Goexit
					a := answer{failed, body}
					defer func() { finished <- a }()
					a = perform(ctx, m.body, do)
				}()
			case !busy:
				err = send(c, 0, last.kind, index, last.body)
			}
		case last = <-finished:
			busy = false
			err = send(c, 0, last.kind, index, last.body)
		}
		if err == nil {
			continue
		}
		d, failed := shrink(c, err)
		if failed != nil {
			return failed
		}
		c = d
		if at, _ := d.Group().TranslateRanks([]int{0}, first); at[0] != 0 {
			return lost(err)
		}
		listen()
	}
}

// perform runs a task.
func perform[In, Out any](ctx context.Context, body []byte, do func(context.Context, In) (Out, error)) answer {
	in, err := values.Decode[In](body, 0)
	if err == nil {
		var out Out
		if out, err = do(ctx, in); err == nil {
			if body, err = values.Encode(out); err == nil {
				return answer{done, body}
			}
		}
	}
	body, _ = values.Encode(failure{err.Error(), stackOf(err)})
	return answer{failed, body}
}
