package file

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

var errDies = errors.New("this rank dies")

// A rank dies at any moment of several writes. A survivor whose write returns no error finds all bytes of all ranks in
// the file, and the others' errors name the bytes.
func TestWriteIsCompleteOrAnErrorWhenARankDies(t *testing.T) {
	const ranks, row, rows = 3, 1000, 400
	name := filepath.Join(t.TempDir(), "f")
	complete := 0
	for range 40 {
		var others sync.WaitGroup
		var mu sync.Mutex
		dies := rand.N(ranks)
		after := rand.N(15 * time.Millisecond)
		body := func(world *cohort.Comm) {
			for version := range byte(8) {
				f, err := Open(world, name+string('a'+rune(version)), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
				if err != nil {
					return
				}
				mine := bytes.Repeat([]byte{'a' + version}, row*rows)
				err = WriteView(f, mine, int64(row*world.Rank()), cohort.Vector(rows, row, ranks*row))
				got := make([]byte, ranks*row*rows)
				f.ReadAt(got, 0)
				f.Close()
				if err == nil && bytes.Count(got, []byte{'a' + version}) != len(got) {
					t.Errorf("rank %d: no error, and %d of %d bytes are in the file", world.Rank(), bytes.Count(got, []byte{'a' + version}), len(got))
				}
				var e *Error
				if err != nil {
					if !errors.As(err, &e) || e.Len < row*rows {
						t.Errorf("rank %d: %v; want an error about %d bytes or more", world.Rank(), err, row*rows)
					}
					return
				}
				mu.Lock()
				complete++
				mu.Unlock()
			}
		}
		err := cohort.Run(t.Context(), ranks, func(world *cohort.Comm) error {
			if world.Rank() == dies {
				others.Go(func() { body(world) })
				time.Sleep(after) // on purpose: the rank dies at this moment
				return errDies
			}
			body(world)
			return nil
		})
		others.Wait()
		if !errors.Is(err, errDies) {
			t.Error(err)
		}
	}
	t.Logf("%d writes were complete", complete)
}

// The world is closed while goroutines write: they get an error, although the memory that they share is gone.
func TestWriteEndsWithAnErrorWhenTheWorldIsClosed(t *testing.T) {
	const ranks, row, rows = 2, 64, 40000
	name := filepath.Join(t.TempDir(), "f")
	for range 10 {
		var writers sync.WaitGroup
		err := cohort.Run(t.Context(), ranks, func(world *cohort.Comm) error {
			f, err := Open(world, name, os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return err
			}
			mine := make([]byte, row*rows)
			began := make(chan struct{})
			writers.Go(func() {
				defer f.Close()
				for first := true; ; first = false {
					err := WriteView(f, mine, int64(row*world.Rank()), cohort.Vector(rows, row, ranks*row))
					if first {
						close(began)
					}
					if err != nil {
						return
					}
				}
			})
			<-began
			time.Sleep(rand.N(3 * time.Millisecond)) // on purpose: the world is closed at any moment
			return nil
		})
		writers.Wait()
		if err != nil {
			t.Error(err)
		}
	}
}

// The deadline of one rank passes at any moment of writes and reads. Every rank gets an error that names all of its
// bytes, or that the file is broken, and none waits.
func TestDeadlineInTheMiddleOfATransfer(t *testing.T) {
	const ranks, row, rows = 3, 100, 60000
	name := filepath.Join(t.TempDir(), "f")
	for i := range 30 {
		late := i % ranks
		over, end := context.WithCancel(t.Context()) // when the late rank has its error
		err := cohort.Run(t.Context(), ranks, func(world *cohort.Comm) error {
			f, err := Open(world, name, os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return err
			}
			mine := make([]byte, row*rows)
			l := cohort.Vector(rows, row, ranks*row)
			if err := WriteView(f, mine, int64(row*world.Rank()), l); err != nil {
				return err
			}
			limited := f
			if world.Rank() == late {
				defer end()
				ctx, cancel := context.WithTimeout(context.Background(), rand.N(30*time.Millisecond))
				defer cancel()
				limited = f.WithContext(ctx)
			}
			began := time.Now()
			for move := WriteView[byte]; err == nil; {
				if world.Rank() != late && time.Since(began) > 40*time.Millisecond {
					<-over.Done() // an operation ends with its context only if it waits
				}
				err = move(limited, mine, int64(row*world.Rank()), l)
				if i%2 == 0 {
					move = ReadView[byte]
				}
			}
			if world.Rank() == late {
				end()
			}
			var e *Error
			if !errors.As(err, &e) || e.Len < (ranks*rows-ranks+1)*row || !errors.Is(err, cohort.ErrTimeout) && !errors.Is(err, cohort.ErrBroken) {
				t.Errorf("rank %d: %v; want that the time is up or the file broken, and an error about all bytes", world.Rank(), err)
			}
			if err := f.Sync(); !errors.Is(err, cohort.ErrBroken) {
				t.Errorf("rank %d: Sync after the deadline: %v, want %v", world.Rank(), err, cohort.ErrBroken)
			}
			f.Close()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
