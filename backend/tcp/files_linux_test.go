package tcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// A process with TCP_TEST_SHORT is a rank that can open only a given number of files more.
func init() {
	text := os.Getenv("TCP_TEST_SHORT")
	if text == "" {
		return
	}
	var rank, size, room int
	var coordinator, secret string
	_, err := fmt.Sscan(text, &rank, &size, &room, &coordinator, &secret)
	if err == nil {
		err = short(Config{Config: backend.Config{Rank: rank, Size: size, Job: "short"}, Coordinator: coordinator, SecretFile: secret, Interface: "127.0.0.1"}, room)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func short(cfg Config, room int) error {
	if err := ranktest.LimitFiles(room); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	// All wait for rank 0, which waits for all.
	bound := &backend.Bound{Timeout: time.Minute}
	for r := 1; r < cfg.Size; r++ {
		if cfg.Rank == 0 {
			if _, err := c.Recv(bound, nil, r, 1); err != nil {
				return err
			}
		}
	}
	if cfg.Rank > 0 {
		if err := c.Send(bound, nil, 0, 1, backend.Standard); err != nil {
			return err
		}
		_, err := c.Recv(bound, nil, 0, 2)
		return err
	}
	for r := 1; r < cfg.Size; r++ {
		if err := c.Send(bound, nil, r, 2, backend.Standard); err != nil {
			return err
		}
	}
	return nil
}

// With fewer descriptors than a job needs, it does not start on any rank, and each rank reports at once what the
// limit has to be. With as many as it asks for, it always works.
func TestTooFewDescriptorsIsAnErrorOnAllRanks(t *testing.T) {
	for _, c := range []struct {
		ranks, room int
		works       bool
	}{
		{2, 0, false}, {2, 8, false}, {2, 9, true},
		{3, 4, false}, {3, 11, false}, {3, 12, true},
		{5, 2, false}, {5, 17, false}, {5, 18, true},
		{8, 26, false}, {8, 27, true},
	} {
		t.Run(fmt.Sprintf("%d ranks, %d left", c.ranks, c.room), func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			coordinator := l.Addr().String()
			l.Close()
			secret := filepath.Join(t.TempDir(), "secret")
			if err := meet.NewSecret().WriteFile(secret); err != nil {
				t.Fatal(err)
			}
			ranktest.FewFiles(t, c.ranks, c.works, func(rank int) []string {
				return []string{fmt.Sprintf("TCP_TEST_SHORT=%d %d %d %s %s", rank, c.ranks, c.room, coordinator, secret)}
			})
		})
	}
}
