//go:build linux || darwin

package tcp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// TestChangedPayloadLosesItsSender checks that a payload goes out with its sum, and that one that was changed on the way is no
// message, but the loss of its sender.
func TestChangedPayloadLosesItsSender(t *testing.T) {
	for _, c := range []struct {
		what   string
		room   int  // of the receive
		early  bool // it is posted before the message comes
		length int
		flip   int // the byte that is changed, -1 for none
	}{
		{"posted, as it was sent", 1000, true, 1000, -1},
		{"unexpected, as it was sent", 1000, false, 1000, -1},
		{"the first byte", 1000, true, 1000, 0},
		{"the last byte", 1000, true, 1000, 999},
		{"in two reads", engine.EagerMax, true, engine.EagerMax, engine.EagerMax - 1},
		{"unexpected", 1000, false, 1000, 500},
		{"where there is no room for it", 10, true, 1000, 999},
	} {
		t.Run(c.what, func(t *testing.T) {
			a, b := pair(t)
			defer b.Close()
			w, err := over(0, []net.Conn{nil, a}, -1, true)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			bound := &backend.Bound{Timeout: time.Minute}
			out := ranktest.Fill(make([]byte, c.length), 3)
			if err := w.Send(bound, out, 1, 1, backend.Standard); err != nil {
				t.Fatal(err)
			}
			whole := make([]byte, frame.HeaderSize+c.length)
			if _, err := io.ReadFull(b, whole); err != nil {
				t.Fatal(err)
			}
			var h frame.Header
			dec := frame.Decoder{Limit: engine.EagerMax}
			if err := dec.Decode(&h, (*[frame.HeaderSize]byte)(whole)); err != nil {
				t.Fatal(err)
			}
			if want := frame.Sum(0, out); h.Flags&frame.FlagSummed == 0 || h.Sum != want {
				t.Fatalf("it is sent with the sum %08x, flags %d, want %08x", h.Sum, h.Flags, want)
			}
			q := &backend.Request{}
			q.Begin()
			buf := make([]byte, c.room)
			if c.early {
				w.Irecv(q, buf, 1, 1)
			}
			if c.flip >= 0 {
				whole[frame.HeaderSize+c.flip] ^= 0x10 // its header and its sum are right
			}
			if _, err := b.Write(whole); err != nil {
				t.Fatal(err)
			}
			if !c.early {
				w.Irecv(q, buf, 1, 1)
			}
			if err := w.Await(bound, q); err != nil {
				t.Fatal(err)
			}
			if c.flip < 0 {
				if q.Err != nil || string(buf) != string(out) {
					t.Errorf("the receive ends with %v", q.Err)
				}
				return
			}
			if !errors.Is(q.Err, backend.ErrPeerLost) || !strings.Contains(q.Err.Error(), "changed on the way") {
				t.Errorf("the receive ends with %v", q.Err)
			}
		})
	}
	launch(t, "all", 3, "TCP_TEST_SUMS=1")
	launch(t, "withdraw", 2, "TCP_TEST_SUMS=1", "TCP_TEST_CROWDED=1")
}

// TestTakenPortsAreAnError checks that a rank for which no port of the range is free says so, before it waits
// for any other rank. With connections on demand, the last world may have them.
func TestTakenPortsAreAnError(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		taken, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(address)})
		if err != nil {
			t.Logf("%s: %v", address, err) // a machine without IPv6
			continue
		}
		defer taken.Close()
		port := taken.Addr().(*net.TCPAddr).AddrPort().Port()
		path := t.TempDir() + "/secret"
		if err := meet.NewSecret().WriteFile(path); err != nil {
			t.Fatal(err)
		}
		for _, connect := range []string{ConnectStart, ConnectDemand} {
			_, err = Open(t.Context(), Config{Config: backend.Config{Size: 2, Rank: 1, Job: "job"}, SecretFile: path, Interface: address,
				Coordinator: netip.AddrPortFrom(netip.MustParseAddr(address), 1).String(), Ports: strconv.Itoa(int(port)), Connect: connect})
			if !errors.Is(err, backend.ErrInit) || !strings.Contains(err.Error(), strconv.Itoa(int(port))) {
				t.Errorf("%s: %v", address, err)
			} else if hint := "two ports for each rank"; strings.Contains(err.Error(), hint) != (connect == ConnectDemand) {
				t.Errorf("%s, connections at %s: %v; want %q on demand only", address, connect, err, hint)
			}
		}
	}
}
