//go:build linux || darwin

package jobtest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/tcp"
	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/meet"
)

// openAll opens a job on all its ranks, which meet at rank 0, and returns their errors. f changes what a
// rank is opened with. The deadline ends those who have no reason to give up earlier.
func openAll(t *testing.T, n int, deadline time.Duration, f func(rank int, cfg *tcp.Config)) []error {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	free.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := meet.NewSecret().WriteFile(secret); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for r := range n {
		ranks.Go(func() {
			cfg := tcp.Config{Config: backend.Config{Rank: r, Size: n, Job: "job"}, Coordinator: at, SecretFile: secret, Sockets: true}
			f(r, &cfg)
			c, err := tcp.Open(ctx, cfg)
			if err == nil {
				c.Close()
			}
			errs[r] = err
		})
	}
	ranks.Wait()
	return errs
}

// TestDifferentTLSSettingsAreErrors opens jobs whose ranks do not all have the same idea of TLS. Each of them gets an error that
// says so, and none a communicator: the odd ones at once, and those who wait for them when they give up.
func TestDifferentTLSSettingsAreErrors(t *testing.T) {
	certA, keyA, caA := certify(t, "cohort", time.Now().Add(time.Hour))
	certB, keyB, caB := certify(t, "cohort", time.Now().Add(time.Hour))
	both := filepath.Join(t.TempDir(), "both.pem")
	var bundle []byte
	for _, ca := range []string{caA, caB} {
		b, err := os.ReadFile(ca)
		if err != nil {
			t.Fatal(err)
		}
		bundle = append(bundle, b...)
	}
	if err := os.WriteFile(both, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	a := tcp.Config{TLSCert: certA, TLSKey: keyA, TLSCA: caA}
	b := tcp.Config{TLSCert: certB, TLSKey: keyB, TLSCA: caB}
	aForAll := tcp.Config{TLSCert: certA, TLSKey: keyA, TLSCA: both}
	bForAll := tcp.Config{TLSCert: certB, TLSKey: keyB, TLSCA: both}
	type want []string // in the text of ErrInit
	for _, c := range []struct {
		what string
		tls  []tcp.Config // by rank
		want []want
	}{
		{"rank 2 has no TLS", []tcp.Config{a, a, {}},
			[]want{{"1 of 3 ranks", ": rank 2;", "TLS on one side only"}, {"1 of 3 ranks", ": rank 2;", "TLS on one side only"},
				{"TLS on one side only", "this process uses no TLS, the other uses TLS"}}},
		{"only rank 2 has TLS", []tcp.Config{{}, {}, a},
			[]want{{": rank 2;", "TLS on one side only"}, {": rank 2;", "TLS on one side only"},
				{"TLS on one side only", "this process uses TLS, the other uses no TLS"}}},
		{"rank 0 has no TLS", []tcp.Config{{}, a, a},
			[]want{{"2 of 3 ranks", ": ranks 1, 2;", "TLS on one side only"}, {"TLS on one side only"}, {"TLS on one side only"}}},
		{"rank 2 is of another authority", []tcp.Config{a, a, b},
			[]want{{"1 of 3 ranks", ": rank 2;", "TLS failed"}, {"1 of 3 ranks", ": rank 2;", "TLS failed"},
				{"TLS failed", "authority"}}},
		{"rank 0 is of another authority", []tcp.Config{b, a, a},
			[]want{{"2 of 3 ranks", ": ranks 1, 2;", "TLS failed"}, {"TLS failed", "authority"}, {"TLS failed", "authority"}}},
		// The ranks meet, at rank 0, which trusts both, and then cannot all connect.
		{"rank 1 does not know rank 2's authority", []tcp.Config{aForAll, a, bForAll},
			[]want{{"rank 2", "rank 1", "TLS failed", "certificate"}, {"rank 2", "rank 1", "TLS failed", "certificate"},
				{"rank 2", "rank 1", "TLS failed", "certificate"}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel() // they wait, for the most part
			// On a slow machine a rank may not get to know in time what it is to say.
			for deadline := 2 * time.Second; ; deadline *= 2 {
				errs := openAll(t, len(c.tls), deadline, func(rank int, cfg *tcp.Config) {
					cfg.TLSCert, cfg.TLSKey, cfg.TLSCA = c.tls[rank].TLSCert, c.tls[rank].TLSKey, c.tls[rank].TLSCA
				})
				right := true
				for r, w := range c.want {
					if errs[r] == nil {
						t.Fatalf("rank %d has joined the job", r)
					}
					lacks := func(text string) bool { return !strings.Contains(errs[r].Error(), text) }
					right = right && errors.Is(errs[r], backend.ErrInit) && !slices.ContainsFunc(w, lacks)
				}
				if right {
					for r, err := range errs {
						t.Logf("rank %d: %v", r, err)
					}
					return
				}
				if deadline > 30*time.Second {
					for r, err := range errs {
						t.Errorf("rank %d: %v; want ErrInit with the words %q", r, err, c.want[r])
					}
					return
				}
			}
		})
	}
}

// TestConformanceOverTLS is a part of the suite over TLS, in the smaller matrix: what differs is how bytes come
// and go, in long messages and in small ones, from one rank and from several at once.
func TestConformanceOverTLS(t *testing.T) {
	cohorttest.Become()
	cert, key, ca := certify(t, "cohort", time.Now().Add(time.Hour))
	id, err := meet.LoadTLS(cert, key, ca, "cohort")
	if err != nil {
		t.Fatal(err)
	}
	l := launcher{tls: id, env: []string{"COHORT_TCP_SHM=0", "COHORT_TCP_TLS_CERT=" + cert, "COHORT_TCP_TLS_KEY=" + key, "COHORT_TCP_TLS_CA=" + ca}}
	cohorttest.Some(t, l, 3, func(s string) bool {
		family, _, _ := strings.Cut(s, "/")
		return slices.Contains([]string{"p2p", "Bcast", "Alltoall", "Allreduce", "sequence", "limits", "faults"}, family) &&
			(!testing.Short() || family == "Allreduce" || inFew(s, "-of-view|-long-send"))
	})
}
