//go:build linux

package shmem

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// duplex returns both ends of rings, each with a mapping of its own.
func duplex(t testing.TB, ring int) (a, b *Duplex) {
	t.Helper()
	s, err := Create("test", DuplexSize(ring))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(s.FD())
	if err != nil {
		t.Fatal(err)
	}
	o, err := Open(fd, DuplexSize(ring))
	if err != nil {
		t.Fatal(err)
	}
	if a, err = NewDuplex(s, ring, true); err != nil {
		t.Fatal(err)
	}
	if b, err = NewDuplex(o, ring, false); err != nil {
		t.Fatal(err)
	}
	a.Bell, b.Bell = func() {}, func() {}
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

// at is the byte at a place of a stream.
func at(i int) byte { return byte(i ^ i>>8*31 ^ i>>16*7) }

// TestDuplex sends bytes both ways at once, in pieces of all lengths, with ends that sleep whenever
// they can: every byte arrives, in order, and no end sleeps on.
func TestDuplex(t *testing.T) {
	for _, ring := range []int{4096, 64 << 10} {
		t.Run(fmt.Sprint(ring), func(t *testing.T) {
			const total = 3 << 20
			ends := [2]*Duplex{}
			ends[0], ends[1] = duplex(t, ring)
			bells := [2]chan struct{}{make(chan struct{}, 1<<16), make(chan struct{}, 1<<16)}
			failed := make(chan error, 2)
			for k, d := range ends {
				d.Bell = func() { bells[1-k] <- struct{}{} }
				go func() { failed <- exchange(d, total, 3*ring, bells[k], rand.New(rand.NewPCG(1, uint64(k)))) }()
			}
			for range ends {
				if err := <-failed; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// exchange writes and reads total bytes.
func exchange(d *Duplex, total, most int, bell chan struct{}, r *rand.Rand) error {
	out, in := make([]byte, most), make([]byte, most)
	for wrote, read := 0, 0; wrote < total || read < total; {
		n := min(r.IntN(most), total-wrote)
		for i := range n {
			out[i] = at(wrote + i)
		}
		cut := r.IntN(n + 1)
		w, err := d.Writev(out[:cut], out[cut:n])
		if err != nil {
			return err
		}
		wrote += w
		n = min(1+r.IntN(most), total-read)
		cut = r.IntN(n + 1)
		k, err := d.Readv(in[:cut], in[cut:n])
		if err != nil {
			return err
		}
		for i := range k {
			if in[i] != at(read+i) {
				return fmt.Errorf("byte %d is %d, want %d", read+i, in[i], at(read+i))
			}
		}
		read += k
		if w > 0 || k > 0 || wrote == total && read == total || n == 0 && wrote < total {
			continue
		}
		if !d.Arm(wrote < total) {
			select {
			case <-bell:
			case <-time.After(time.Minute):
				return fmt.Errorf("no bell rang: %d bytes written and %d read of %d", wrote, read, total)
			}
		}
		d.Disarm()
	}
	return nil
}

// TestDuplexHostile checks that positions that cannot be are an error, whoever wrote them.
func TestDuplexHostile(t *testing.T) {
	const ring = 4096
	for _, c := range []struct {
		what string
		set  func(d *Duplex)
		use  func(d *Duplex) error
	}{
		{"more than the ring holds", func(d *Duplex) { d.in.tail.Store(100 + ring + 1) }, read},
		{"less than there was", func(d *Duplex) { d.in.tail.Store(99) }, read},
		{"as far as can be", func(d *Duplex) { d.in.tail.Store(1<<64 - 1) }, read},
		{"half of that", func(d *Duplex) { d.in.tail.Store(1 << 63) }, read},
		{"more room than was used", func(d *Duplex) { d.out.head.Store(201) }, write},
		{"room taken back", func(d *Duplex) { d.look(); d.out.head.Store(50) }, write},
		{"no room there can be", func(d *Duplex) { d.out.head.Store(1<<64 - 1) }, write},
	} {
		t.Run(c.what, func(t *testing.T) {
			a, b := duplex(t, ring)
			buf := make([]byte, 200)
			a.Write(buf[:100])
			b.Read(buf)
			b.Write(buf) // 200 of b's to a, of which a reads 100 and says so
			a.Read(buf[:100])
			a.in.head.Store(100)
			c.set(b)
			if err := c.use(b); !errors.Is(err, ErrDuplex) {
				t.Errorf("the error is %v", err)
			}
			b.Arm(true)
			b.Disarm()
		})
	}
	s, err := Create("test", DuplexSize(ring))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, size := range []int{0, -4096, 100, 2048, 5000, 2 * ring} {
		if _, err := NewDuplex(s, size, true); err == nil {
			t.Errorf("rings of %d bytes in a segment for %d", size, ring)
		}
	}
}

func read(d *Duplex) error {
	_, err := d.Read(make([]byte, 10000))
	return err
}

func write(d *Duplex) error {
	_, err := d.Write(make([]byte, 10000))
	return err
}

// FuzzDuplex has the other end write anything anywhere in the words that both use: no call does more
// than its buffers hold.
func FuzzDuplex(f *testing.F) {
	f.Add([]byte("\x00\x10\x01\x20\x02\x30"))
	f.Add([]byte("\x04\xff\x01\xff\x05\xff\x00\xff\x06\xff\x00\x01\x07\x80\x01\x01"))
	f.Fuzz(func(t *testing.T, script []byte) {
		const ring = 4096
		s, err := Create("test", DuplexSize(ring))
		if err != nil {
			t.Skip(err)
		}
		defer s.Close()
		d, err := NewDuplex(s, ring, true)
		if err != nil {
			t.Fatal(err)
		}
		d.Bell = func() {}
		word := func(k int) *atomic.Uint64 { return At[atomic.Uint64](s, k*apart) }
		buf := make([]byte, 20000)
		for i := 0; i+1 < len(script) && i < 200; i += 2 {
			x := int(script[i+1])
			var n, most int
			switch script[i] % 8 {
			case 0:
				most = x * 64
				n, _ = d.Write(buf[:most])
			case 1:
				most = x * 64
				n, _ = d.Readv(buf[:most/2], buf[most/2:most])
			case 2:
				d.Arm(x&1 != 0)
			case 3:
				d.Disarm()
			case 4, 5:
				word(1 + int(script[i]&1)).Add(uint64(x) * 16) // as far as the other has read, or written
			case 6:
				word(1 + x&1).Store(uint64(x) << 56)
			case 7:
				word(4 + x&1).Store(uint64(x))
			}
			if n < 0 || n > most || n > ring {
				t.Fatalf("%d bytes of %d", n, most)
			}
		}
	})
}
