//go:build linux || darwin

package tcp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// A peer that sends what cannot be right is lost, with an error that says so, and nothing else happens: no
// panic, no hang, no byte outside a buffer.
func TestRankThatSendsInvalidFramesIsLost(t *testing.T) {
	long := make([]byte, pieceMax)
	for _, c := range []struct {
		what   string
		frames func(token uint64) []wire.Header // token: of a receive that waits for 2*eagerMax bytes
		raw    []byte
		text   string
	}{
		{"garbage", nil, long[:wire.HeaderSize], "checksum"},
		{"an eager message that is too long", func(uint64) []wire.Header {
			return []wire.Header{{Kind: wire.Eager, Tag: 1, Length: eagerMax + 1}}
		}, nil, "eager message of 65537 bytes"},
		{"data at the wrong offset", func(token uint64) []wire.Header {
			return []wire.Header{{Kind: wire.Data, Token: token, Offset: 8, Length: 8}}
		}, nil, "8 bytes at 8"},
		{"data beyond the end", func(token uint64) []wire.Header {
			return []wire.Header{{Kind: wire.Data, Token: token, Length: 2*eagerMax + 1}}
		}, nil, "131073 bytes at 0"},
		{"no data", func(token uint64) []wire.Header { return []wire.Header{{Kind: wire.Data, Token: token}} }, nil, "0 bytes at 0"},
		{"a notice that is too long", func(uint64) []wire.Header {
			return []wire.Header{{Kind: wire.Broken, Length: noticeMax + 1}}
		}, nil, "notice of 4097 bytes"},
		{"a kind that is not valid", func(uint64) []wire.Header { return []wire.Header{{Kind: wire.Withdrawn, Token: 1}} }, nil, "not valid here"},
		{"a confirmation of what was not read", func(token uint64) []wire.Header {
			return []wire.Header{{Kind: wire.Ack, Token: token}}
		}, nil, "it confirms"},
		{"an exposed message with a short address", func(uint64) []wire.Header {
			return []wire.Header{{Kind: wire.Expose, Tag: 1, Token: 3, Length: exposureSize - 1}}
		}, nil, "an exposed message with 15 bytes of address"},
		{"an exposed message of an impossible size", func(uint64) []wire.Header {
			return []wire.Header{{Kind: wire.Expose, Tag: 1, Token: 3, Length: exposureSize}}
		}, nil, "at 0x0"},
		{"a rank that is not there", func(uint64) []wire.Header { return []wire.Header{{Kind: wire.Lost, Tag: 7}} }, nil, "rank 7"},
	} {
		t.Run(c.what, func(t *testing.T) {
			a, b := pair(t)
			defer b.Close()
			fd, err := takeSocket(a)
			if err != nil {
				t.Fatal(err)
			}
			w, err := newEngine(0, []peer{{}, {node: 1}}, []conn{{fd: -1}, {fd: fd, enc: &wire.Encoder{}, dec: &wire.Decoder{}}}, false, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			bound := &backend.Bound{Timeout: time.Minute}
			var enc wire.Encoder
			write := func(h wire.Header) {
				t.Helper()
				var head [wire.HeaderSize]byte
				enc.Encode(&head, &h)
				if _, err := b.Write(append(head[:], long[:min(h.Payload(), pieceMax)]...)); err != nil {
					t.Fatal(err)
				}
			}
			// A receive that has answered an RTS.
			q := &backend.Request{}
			q.Begin()
			buf := make([]byte, 2*eagerMax)
			w.Irecv(q, buf, 1, 5)
			write(wire.Header{Kind: wire.ReadyToSend, Tag: 5, Length: uint64(len(buf)), Token: 99})
			var head [wire.HeaderSize]byte
			accepted := make(chan error, 1)
			go func() {
				_, err := b.Read(head[:])
				accepted <- err
			}()
			for done := false; !done; {
				w.Poll()
				select {
				case err := <-accepted:
					if err != nil {
						t.Fatal(err)
					}
					done = true
				default:
				}
			}
			var h wire.Header
			dec := wire.Decoder{Limit: pieceMax}
			if err := dec.Decode(&h, &head); err != nil || h.Kind != wire.ClearToSend || h.Token != 99 || h.Length != uint64(len(buf)) {
				t.Fatalf("the answer to the RTS is %+v, %v", h, err)
			}
			// Harmless: an unknown token, and one that another operation has.
			write(wire.Header{Kind: wire.Data, Token: 12345, Length: 100})
			write(wire.Header{Kind: wire.ClearToSend, Token: 12345, Length: 100, Reply: 1})
			write(wire.Header{Kind: wire.ClearToSend, Token: h.Reply, Length: 100, Reply: 1})
			write(wire.Header{Kind: wire.Ack, Token: 12345})
			write(wire.Header{Kind: wire.Withdraw, Token: 12345})
			write(wire.Header{Kind: wire.Eager, Context: 77, Tag: 5, Length: 4})
			if c.frames != nil {
				for _, f := range c.frames(h.Reply) {
					write(f)
				}
			} else if _, err := b.Write(c.raw); err != nil {
				t.Fatal(err)
			}
			if err := w.Await(bound, q); err != nil {
				t.Fatal(err)
			}
			var f *backend.Fault
			if !errors.As(q.Err, &f) || f.Sentinel != backend.ErrPeerLost || !strings.Contains(f.Text, c.text) {
				t.Errorf("the receive ended with %v, want ErrPeerLost and %q in it", q.Err, c.text)
			}
			if err := w.Send(bound, nil, 1, 1, backend.Standard); !errors.Is(err, backend.ErrPeerLost) {
				t.Errorf("a send to it afterwards: %v, want ErrPeerLost", err)
			}
		})
	}
}
