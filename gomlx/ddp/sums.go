package ddp

import (
	"fmt"

	"github.com/gomlx/gomlx/pkg/core/dtypes/bfloat16"
	"github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/x448/float16"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/exact"
	"github.com/cohort-hpc/cohort/tensor"
)

// entry is something that is averaged: the gradient of a parameter, or a variable that the model itself changes.
type entry struct {
	variable *context.Variable
	gradient *context.Variable // nil: the variable itself is averaged
	index    int               // in Trainer.entries
	at       int               // position in its bucket
}

// source returns the variable whose value is averaged.
func (e *entry) source() *context.Variable {
	if e.gradient != nil {
		return e.gradient
	}
	return e.variable
}

func (e *entry) String() string {
	if e.gradient != nil {
		return "the gradient of " + e.variable.ScopeAndName()
	}
	return e.variable.ScopeAndName()
}

// summer has the entries of one width. Of uses, the element with an entry's index is not 0 if the entry has a value.
type summer interface {
	clear()
	// add adds rows times the values of the entries of bucket k, and returns the first entry that is not finite.
	add(k, rows int, uses []float64) (*entry, error)
	// all calls fill for each bucket.
	all(fill func(k int) error) error
	// reduce calls fill for each bucket, and adds up the buckets of all ranks. Collective.
	reduce(fill func(k int) error) error
	// store divides by rows, and stores the quotients where the values come from. It returns the first entry that is not finite.
	store(rows float64, uses []float64) (*entry, error)
	close() error
}

// sums is a summer. Halves are added up as float32.
type sums[T float32 | float64] struct {
	buckets []bucket[T]
	reducer *tensor.Reducer[T] // nil: exact
	comm    *cohort.Comm
}

type bucket[T float32 | float64] struct {
	entries []*entry
	flat    []T                   // the sums; if exact, the values of a step, and at the end the sums
	exact   *exact.Accumulator[T] // nil: not exact
}

// newSums returns a summer with buckets of at most most elements. Collective.
func newSums[T float32 | float64](t *Trainer, entries []*entry, most int) (*sums[T], error) {
	s := &sums[T]{comm: t.comm}
	for _, e := range entries {
		n := e.variable.Shape().Size()
		if last := len(s.buckets) - 1; last < 0 || len(s.buckets[last].flat)+n > most {
			s.buckets = append(s.buckets, bucket[T]{})
		}
		b := &s.buckets[len(s.buckets)-1]
		e.at = len(b.flat)
		b.entries = append(b.entries, e)
		b.flat = append(b.flat, make([]T, n)...)
	}
	if t.cfg.Exact {
		for k := range s.buckets {
			s.buckets[k].exact = exact.New[T](len(s.buckets[k].flat))
		}
		return s, nil
	}
	flats := make([]*tensor.Tensor[T], len(s.buckets))
	for k, b := range s.buckets {
		var err error
		if flats[k], err = tensor.Of(b.flat, len(b.flat)); err != nil {
			return nil, err
		}
	}
	var err error
	s.reducer, err = tensor.NewReducer(t.tcomm, flats, tensor.Sum, 1) // buckets of one tensor, which are reduced where they are
	return s, err
}

func (s *sums[T]) close() error { return s.reducer.Close() }

func (s *sums[T]) clear() {
	for _, b := range s.buckets {
		if clear(b.flat); b.exact != nil {
			b.exact.Reset()
		}
	}
}

func (s *sums[T]) add(k, rows int, uses []float64) (bad *entry, err error) {
	b := s.buckets[k]
	if b.exact != nil {
		clear(b.flat)
	}
	for _, e := range b.entries {
		if uses[e.index] == 0 {
			continue
		}
		value, err := e.source().Value()
		if err != nil {
			return nil, err
		}
		finite := true
		dst := b.flat[e.at:]
		if err := value.ConstFlatData(func(flat any) { finite = addTimes(dst, flat, T(rows)) }); err != nil {
			return nil, err
		}
		if !finite && bad == nil {
			bad = e
		}
	}
	if b.exact != nil {
		err = b.exact.Add(b.flat)
	}
	return bad, err
}

func (s *sums[T]) all(fill func(k int) error) error {
	for k := range s.buckets {
		if err := fill(k); err != nil {
			return err
		}
	}
	return nil
}

func (s *sums[T]) reduce(fill func(k int) error) error {
	for k := range s.buckets {
		if err := fill(k); err != nil {
			return err
		}
		if b := s.buckets[k]; b.exact != nil {
			if err := b.exact.Allreduce(s.comm, b.flat); err != nil {
				return err
			}
		} else if s.reducer.Ready(k) != nil {
			break // Wait returns the error
		}
	}
	if s.reducer == nil {
		return nil
	}
	return s.reducer.Wait()
}

func (s *sums[T]) store(rows float64, uses []float64) (bad *entry, err error) {
	for _, b := range s.buckets {
		for _, e := range b.entries {
			if uses[e.index] == 0 {
				continue
			}
			value, err := e.source().Value()
			if err != nil {
				return nil, err
			}
			src := b.flat[e.at : e.at+value.Size()]
			var check T
			for i := range src {
				src[i] /= T(rows)
				check += src[i] - src[i] // 0 unless src[i] is infinite or not a number
			}
			if check != 0 && bad == nil {
				bad = e
			}
			if err := value.MutableFlatData(func(flat any) { assign(flat, src) }); err != nil {
				return nil, err
			}
		}
	}
	return bad, nil
}

// addTimes adds w times each element of flat to dst, and reports whether all elements are finite.
func addTimes[T float32 | float64](dst []T, flat any, w T) bool {
	switch src := flat.(type) {
	case []float32:
		return addEach(dst, src, w, func(x float32) T { return T(x) })
	case []float64:
		return addEach(dst, src, w, func(x float64) T { return T(x) })
	case []float16.Float16:
		return addEach(dst, src, w, func(x float16.Float16) T { return T(x.Float32()) })
	case []bfloat16.BFloat16:
		return addEach(dst, src, w, func(x bfloat16.BFloat16) T { return T(x.Float32()) })
	}
	panic(fmt.Sprintf("ddp: elements of %T", flat))
}

func addEach[T float32 | float64, S any](dst []T, src []S, w T, value func(S) T) bool {
	var check T
	for i, s := range src {
		x := value(s)
		dst[i] += w * x
		check += x - x
	}
	return check == 0
}

// assign converts src to the type of flat.
func assign[T float32 | float64](flat any, src []T) {
	switch dst := flat.(type) {
	case []float32:
		for i, x := range src {
			dst[i] = float32(x)
		}
	case []float64:
		for i, x := range src {
			dst[i] = float64(x)
		}
	case []float16.Float16:
		for i, x := range src {
			dst[i] = float16.Fromfloat32(float32(x))
		}
	case []bfloat16.BFloat16:
		for i, x := range src {
			dst[i] = bfloat16.FromFloat32(float32(x))
		}
	}
}
