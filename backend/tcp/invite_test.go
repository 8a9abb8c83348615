//go:build linux || darwin

package tcp

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/meet"
)

// TestRejoinSaysThatPortsAreTooFew has rank 0 of a next world find one port where it needs two.
func TestRejoinSaysThatPortsAreTooFew(t *testing.T) {
	_, port, _ := strings.Cut(freeAddress(t), ":")
	share := func(_ context.Context, text string) (string, error) { return text, nil }
	_, err := Open(t.Context(), Config{Config: backend.Config{Size: 2, Job: "job.1", Share: share}, Met: "127.0.0.1:7700", Ports: port})
	if !errors.Is(err, backend.ErrInit) || !strings.Contains(err.Error(), "Rejoin needs one port more for rank 0") {
		t.Error(err)
	}
}

// TestNextWorldMeetsOnSameInterface looks at the addresses that rank 0 of a next world gives to the others: those of the
// loopback interface if the first world met there, also if more ranks were on this node than there are now.
func TestNextWorldMeetsOnSameInterface(t *testing.T) {
	told := errors.New("told")
	here, err := meet.Interfaces("")
	if err != nil {
		t.Fatal(err)
	}
	outside, err := meet.Interfaces("any")
	if err != nil {
		outside = nil // this machine has a loopback interface alone, and Open says so
	}
	for _, c := range []struct {
		choice, met string
		want        []netip.Addr
	}{
		{"", "127.0.0.1:7700", here},
		{"", "localhost:7700", here},
		{"", "[::1]:7700", here},
		{"", "10.97.0.1:7700", outside},
		{"", "node1:7700", outside},
		{"127.0.0.1", "10.97.0.1:7700", []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		{"any", "127.0.0.1:7700", outside},
		{"", "", here}, // under a launcher that says that all ranks are here
	} {
		var got []netip.Addr
		share := func(_ context.Context, text string) (string, error) {
			list, _, _ := strings.Cut(text, "/")
			for a := range strings.SplitSeq(list, ",") {
				got = append(got, netip.MustParseAddrPort(a).Addr())
			}
			return "", told
		}
		_, err := Open(t.Context(), Config{Config: backend.Config{Size: 2, Job: "job.1", Share: share}, Interface: c.choice, Met: c.met})
		if len(c.want) > 0 && !errors.Is(err, told) || len(got) != len(c.want) {
			t.Errorf("interface %q, met at %q: %v, %v, want %v", c.choice, c.met, got, err, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("interface %q, met at %q: %v, want %v", c.choice, c.met, got, c.want)
			}
		}
	}
}
