package values

import (
	"bytes"
	"reflect"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// failed wraps the error of an operation. It returns nil for nil.
func failed(c *cohort.Comm, op string, peer, tag int, err error) error {
	if err == nil {
		return nil
	}
	return &cohort.OpError{Op: op, Comm: c.Name(), Rank: c.Rank(), Peer: peer, Tag: tag, Err: err}
}

// Send sends x to dest, as [cohort.Send] does.
//
// Not collective: the caller and dest take part; dest receives the value with [Recv].
//
// Errors: those of cohort.Send; [cohort.ErrType] for a value that cannot be encoded.
//
// Deadline: as for cohort.Send.
func Send[T any](c *cohort.Comm, x T, dest, tag int) error {
	var buf bytes.Buffer
	if err := encode(&buf, x, nil); err != nil {
		return failed(c, "values.send", dest, tag, err)
	}
	return cohort.Send(c, buf.Bytes(), dest, tag)
}

// Recv receives a value that [Send] sent, as [cohort.Recv] receives a message. From [cohort.ProcNull] it
// returns the zero value.
//
// Not collective: the caller and source take part.
//
// Errors: those of cohort.Recv; [cohort.ErrType] for a message that is not a value of T, which is
// received and dropped.
//
// Deadline: as for cohort.Recv.
func Recv[T any](c *cohort.Comm, source, tag int) (T, cohort.Status, error) {
	var zero T
	if err := traitsOf(reflect.TypeFor[T]()).err; err != nil {
		return zero, cohort.Status{}, failed(c, "values.recv", source, tag, err)
	}
	b, st, err := cohort.RecvAppend[byte](c, nil, source, tag)
	if err != nil || st.Source == cohort.ProcNull {
		return zero, st, err
	}
	x, err := Decode[T](b, st.Source)
	return x, st, failed(c, "values.recv", st.Source, st.Tag, err)
}

// length is the number of bytes of an encoded value. Its name appears in the text of a mismatch.
type length struct{ Bytes int64 }

// Bcast returns root's x on every rank. On the other ranks x is not used.
//
// Collective: all ranks of c call it with the same root.
//
// Errors: [cohort.ErrRoot] and [cohort.ErrType].
func Bcast[T any](c *cohort.Comm, x T, root int) (T, error) {
	return bcast(c, "values.bcast", x, root, nil)
}

// bcast is Bcast for an operation in which root may have found an error, of which the others learn.
func bcast[T any](c *cohort.Comm, op string, x T, root int, bad error) (T, error) {
	var zero T
	var buf bytes.Buffer
	if c.Rank() == root {
		bad = encode(&buf, x, bad)
	}
	n, err := cohort.BcastOne(c, length{int64(buf.Len())}, root)
	if err != nil {
		return zero, err
	}
	data := buf.Bytes()
	if c.Rank() != root {
		data = make([]byte, max(0, n.Bytes))
	}
	if err := cohort.Bcast(c, data, root); err != nil {
		return zero, err
	}
	if c.Rank() != root {
		x, bad = Decode[T](data, root)
	}
	if bad != nil {
		return zero, failed(c, op, root, cohort.Undefined, bad)
	}
	return x, nil
}

// Gather returns the x of all ranks on root, in rank order. On the other ranks it returns nil.
//
// Collective: all ranks of c call it with the same root.
//
// Errors: [cohort.ErrRoot] and [cohort.ErrType].
func Gather[T any](c *cohort.Comm, x T, root int) ([]T, error) {
	return gather(c, "values.gather", x, root, nil)
}

// gather is Gather for an operation with an argument error.
func gather[T any](c *cohort.Comm, op string, x T, root int, bad error) ([]T, error) {
	var buf bytes.Buffer
	bad = encode(&buf, x, bad)
	all, counts, err := cohort.GathervAppend(c, nil, buf.Bytes(), root)
	if err != nil {
		return nil, err
	}
	xs, err := decodeAll[T](all, counts, bad)
	return xs, failed(c, op, root, cohort.Undefined, err)
}

// decodeAll returns the values of all ranks, that of rank r from the next counts[r] bytes of all. If this rank
// had an error before, decodeAll returns that. Without counts it returns nil.
func decodeAll[T any](all []byte, counts []int, bad error) (xs []T, err error) {
	if bad != nil {
		return nil, bad
	}
	for r, n := range counts {
		x, err := Decode[T](all[:n:n], r)
		if err != nil {
			return nil, err
		}
		xs, all = append(xs, x), all[n:]
	}
	return xs, nil
}

// Allgather returns the x of all ranks on every rank, in rank order.
//
// Collective: all ranks of c call it.
//
// Errors: [cohort.ErrType].
func Allgather[T any](c *cohort.Comm, x T) ([]T, error) {
	var buf bytes.Buffer
	bad := encode(&buf, x, nil)
	all, counts, err := cohort.AllgathervAppend(c, nil, buf.Bytes())
	if err != nil {
		return nil, err
	}
	xs, err := decodeAll[T](all, counts, bad)
	return xs, failed(c, "values.allgather", cohort.Undefined, cohort.Undefined, err)
}

// encodeAll encodes one value for each rank, and returns how many bytes each takes.
func encodeAll[T any](c *cohort.Comm, xs []T) (data []byte, counts []int, bad error) {
	var buf bytes.Buffer
	if len(xs) != c.Size() {
		bad = backend.Faultf(cohort.ErrCount, "%d values, want %d, one per rank", len(xs), c.Size())
		xs = make([]T, c.Size())
	}
	if counts, bad = encodeEach(&buf, xs, bad); bad != nil {
		buf.Reset() // every rank learns of the error
		counts, _ = encodeEach(&buf, xs, bad)
	}
	return buf.Bytes(), counts, bad
}

func encodeEach[T any](buf *bytes.Buffer, xs []T, bad error) ([]int, error) {
	counts := make([]int, len(xs))
	for i, x := range xs {
		begin := buf.Len()
		bad = encode(buf, x, bad)
		counts[i] = buf.Len() - begin
	}
	return counts, bad
}

// Scatter returns root's xs[r] on rank r. On the other ranks xs is not used.
//
// Collective: all ranks of c call it with the same root.
//
// Errors: [cohort.ErrRoot] and [cohort.ErrType]; [cohort.ErrCount] if root does not have one value for each
// rank.
func Scatter[T any](c *cohort.Comm, xs []T, root int) (T, error) {
	var zero T
	var data []byte
	var counts []int
	var lengths []length
	var bad error
	if c.Rank() == root {
		data, counts, bad = encodeAll(c, xs)
		for _, n := range counts {
			lengths = append(lengths, length{int64(n)})
		}
	}
	mine := make([]length, 1)
	if err := cohort.Scatter(c, lengths, mine, root); err != nil {
		return zero, err
	}
	part := make([]byte, max(0, mine[0].Bytes))
	if err := cohort.Scatterv(c, data, counts, nil, part, root); err != nil {
		return zero, err
	}
	x := zero
	if bad == nil {
		x, bad = Decode[T](part, root)
	}
	return x, failed(c, "values.scatter", root, cohort.Undefined, bad)
}

// Alltoall sends xs[j] of rank i to rank j, which returns it as element i.
//
// Collective: all ranks of c call it.
//
// Errors: [cohort.ErrType]; [cohort.ErrCount] if a rank does not have one value for each rank.
func Alltoall[T any](c *cohort.Comm, xs []T) ([]T, error) {
	data, counts, bad := encodeAll(c, xs)
	all, counts, err := cohort.AlltoallvAppend(c, nil, data, counts)
	if err != nil {
		return nil, err
	}
	xs, err = decodeAll[T](all, counts, bad)
	return xs, failed(c, "values.alltoall", cohort.Undefined, cohort.Undefined, err)
}

// Reduce combines the x of all ranks with op on root: op(op(x0, x1), x2) and so on, in rank order, so that
// results with rounding are the same in every run. On the other ranks it returns the zero value.
//
// Collective: all ranks of c call it with the same root. Root receives all values before it combines them.
//
// The function is called on root only, in a goroutine of its own. It may change its operands and return one of them.
//
// Errors: [cohort.ErrRoot] and [cohort.ErrType]; [cohort.ErrOp] if op is nil, panics, or calls [runtime.Goexit].
func Reduce[T any](c *cohort.Comm, x T, op func(a, b T) T, root int) (T, error) {
	const name = "values.reduce"
	xs, err := gather(c, name, x, root, checkOp(op))
	var result T
	if err != nil || c.Rank() != root {
		return result, err
	}
	result, err = fold(xs, op)
	return result, failed(c, name, root, cohort.Undefined, err)
}

// Allreduce combines the x of all ranks with op as [Reduce] does, and returns the result on every rank.
//
// Collective: all ranks of c call it. Rank 0 receives all values before it combines them.
//
// The function is called on rank 0 only, in a goroutine of its own.
//
// Errors: [cohort.ErrType]; [cohort.ErrOp] if op is nil, panics, or calls [runtime.Goexit].
func Allreduce[T any](c *cohort.Comm, x T, op func(a, b T) T) (T, error) {
	const name = "values.allreduce"
	var zero, result T
	var buf bytes.Buffer
	bad := encode(&buf, x, checkOp(op))
	all, counts, err := cohort.GathervAppend(c, nil, buf.Bytes(), 0)
	if err != nil {
		return zero, err
	}
	// From here on an error does not end the call, because the others wait for the result.
	if c.Rank() == 0 && bad == nil {
		var xs []T
		if xs, bad = decodeAll[T](all, counts, nil); bad == nil {
			result, bad = fold(xs, op)
		}
	}
	result, err = bcast(c, name, result, 0, bad)
	if bad != nil && c.Rank() != 0 {
		return zero, failed(c, name, cohort.Undefined, cohort.Undefined, bad)
	}
	return result, err
}

func checkOp[T any](op func(a, b T) T) error {
	if op == nil {
		return backend.Faultf(cohort.ErrOp, "the function is nil")
	}
	return nil
}

// fold combines values from the first to the last.
func fold[T any](xs []T, op func(a, b T) T) (T, error) {
	x := xs[0]
	failed := guarded(func() {
		for _, y := range xs[1:] {
			x = op(x, y)
		}
	})
	if failed != "" {
		return x, backend.Faultf(cohort.ErrOp, "the function %s", failed)
	}
	return x, nil
}
