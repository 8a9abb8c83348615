package netlab

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"
)

// TestRelayActionsChangeStream checks what arrives of ten thousand bytes, and how the stream ends, for every action.
func TestRelayActionsChangeStream(t *testing.T) {
	in := make([]byte, 10_000)
	for i := range in {
		in[i] = byte(i % 251)
	}
	flipped := bytes.Clone(in)
	flipped[4321] ^= 1 << 3
	for _, c := range []struct {
		what string
		plan Plan
		want []byte
		end  error // of the reader, nil for an orderly one
	}{
		{"nothing", Plan{}, in, nil},
		{"small pieces", Plan{Chunk: 7}, in, nil},
		{"a flip", Plan{Faults: []Fault{{Do: Flip, At: 4321, N: 3}}}, flipped, nil},
		{"a drop", Plan{Faults: []Fault{{Do: Drop, At: 100, N: 50}}}, append(bytes.Clone(in[:100]), in[150:]...), nil},
		{"a duplicate", Plan{Faults: []Fault{{Do: Duplicate, At: 100, N: 50}}}, append(bytes.Clone(in[:100]), in[50:]...), nil},
		{"two", Plan{Faults: []Fault{{Do: Drop, At: 9000, N: 2000}, {Do: Flip, At: 4321, N: 11}}}, flipped[:9000], nil},
		{"an end", Plan{Faults: []Fault{{Do: End, At: 5000}}}, in[:5000], nil},
		{"a pause", Plan{Faults: []Fault{{Do: Pause, At: 5000, For: 1}}}, in, nil},
		{"a reset", Plan{Faults: []Fault{{Do: Reset, At: 5000}}}, nil, syscall.ECONNRESET},
	} {
		t.Run(c.what, func(t *testing.T) {
			a, b, j, err := Bent(c.plan, Plan{})
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			defer a.Close()
			defer b.Close()
			go func() {
				a.Write(in) // fails where the plan says so
				a.CloseWrite()
			}()
			got, err := io.ReadAll(b)
			if !errors.Is(err, c.end) {
				t.Errorf("the stream ends with %v, want %v", err, c.end)
			}
			if c.end == nil && !bytes.Equal(got, c.want) {
				t.Errorf("%d bytes came, want %d, or others", len(got), len(c.want))
			}
			if n := len(c.plan.Faults); j.Hit() != n {
				t.Errorf("%d of %d faults have happened", j.Hit(), n)
			}
			if c.end != nil {
				return
			}
			// The other direction is whole, and its end gets through.
			if _, err := b.Write(in); err != nil {
				t.Fatal(err)
			}
			b.CloseWrite()
			if back, err := io.ReadAll(a); err != nil || !bytes.Equal(back, in) {
				t.Errorf("back came %d bytes of %d, %v", len(back), len(in), err)
			}
		})
	}
}

// TestSilentRelayPassesNothing checks that nothing passes any more, and that Close ends it all the same.
func TestSilentRelayPassesNothing(t *testing.T) {
	a, b, j, err := Bent(Plan{Faults: []Fault{{Do: Silence, At: 3}}}, Plan{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	if _, err := a.Write([]byte("abcdef")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 3)
	if _, err := io.ReadFull(b, got); err != nil || string(got) != "abc" {
		t.Fatalf("%q came, %v", got, err)
	}
	j.Close()
	if n, err := b.Read(got); n > 0 || err == nil {
		t.Errorf("%d bytes more, %v", n, err)
	}
}
