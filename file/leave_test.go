package file

import (
	"bytes"
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
				time.Sleep(after)
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
			time.Sleep(rand.N(3 * time.Millisecond))
			return nil
		})
		writers.Wait()
		if err != nil {
			t.Error(err)
		}
	}
}
