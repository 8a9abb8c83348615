package cohort

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
)

// JoinErrors tells all ranks whether one of them has an error. It returns nil on every rank if err is nil
// on all of them. Otherwise every rank gets an error that names the lowest rank whose err is not nil, and
// carries the text of that err, 4 KiB at most, and the sentinel that it wraps. A rank whose own err is not nil gets that
// too: errors.Is and errors.As find it.
//
// Ranks that check something alone, such as an input file, use it to stop together:
//
//	err := cohort.JoinErrors(world, load(path))
//
// Collective: an Allreduce, and if a rank has an error, a Bcast.
//
// Errors: those of Allreduce and Bcast, joined with err.
//
// Deadline: as for [Allreduce].
func JoinErrors(c *Comm, err error) error {
	lowest := c.Size()
	if err != nil {
		lowest = c.Rank()
	}
	lowest, failed := AllreduceOne(c, lowest, Min)
	if failed != nil || lowest == c.Size() {
		return withOwn(err, failed)
	}
	// The error of the lowest rank: its sentinel's code, the length of its text, and the text.
	var b [4096]byte
	const head = 3
	if c.Rank() == lowest {
		if code := backend.Code(err); errors.Is(err, backend.Sentinel(code)) {
			b[0] = code
		}
		binary.LittleEndian.PutUint16(b[1:], uint16(copy(b[head:], err.Error())))
	}
	if failed = Bcast(c, b[:], lowest); failed != nil {
		return withOwn(err, failed)
	}
	e := &rankError{rank: lowest, other: true, text: strings.ToValidUTF8(string(b[head:][:binary.LittleEndian.Uint16(b[1:])]), ""), wraps: backend.Sentinel(b[0])}
	switch {
	case c.Rank() == lowest:
		e.text, e.other, e.wraps = err.Error(), false, err
	case err != nil:
		return errors.Join(e, err)
	}
	return e
}

// withOwn joins the error of JoinErrors itself with a rank's own.
func withOwn(own, failed error) error {
	var op *OpError
	if errors.As(failed, &op) {
		renamed := *op
		renamed.Op = "joinerrors"
		failed = &renamed
	}
	if own == nil {
		return failed
	}
	return errors.Join(own, failed)
}

// rankError is a rank's error on all ranks.
type rankError struct {
	rank  int
	text  string
	other bool  // it is another rank's
	wraps error // on that rank its error, on the others the sentinel; nil for none
}

func (e *rankError) Error() string { return fmt.Sprintf("rank %d: %s", e.rank, e.text) }

// Unwrap returns what the error wraps.
func (e *rankError) Unwrap() error { return e.wraps }

// Follows says whether the rank fails because of another one. The launcher reports that one.
func (e *rankError) Follows() bool { return e.other }
