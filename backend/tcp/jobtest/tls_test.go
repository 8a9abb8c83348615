//go:build linux || darwin

package jobtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/tcp"
	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/meet"
)

// certify writes an authority, and a certificate of it for a name, and returns their files.
func certify(t testing.TB, name string, until time.Time) (cert, key, ca string) {
	t.Helper()
	dir := t.TempDir()
	write := func(file, kind string, der []byte) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	make := func(file string, c, parent *x509.Certificate, by *ecdsa.PrivateKey) (string, string, *ecdsa.PrivateKey) {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if by == nil {
			by = k
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &k.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		der2, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		return write(file+".pem", "CERTIFICATE", der), write(file+".key", "PRIVATE KEY", der2), k
	}
	begin := time.Now().Add(-48 * time.Hour)
	a := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: begin, NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	ca, _, k := make("ca", a, a, nil)
	c := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: begin, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	cert, key, _ = make("rank", c, a, k)
	return cert, key, ca
}

// TestResultsOverTLSHaveLocalBits checks that the results over TLS are those of ranks that are goroutines, without and with
// shared memory beside it, and over connections that are made later. With -short it leaves out seven ranks.
func TestResultsOverTLSHaveLocalBits(t *testing.T) {
	cohorttest.Become()
	cert, key, ca := certify(t, "cohort", time.Now().Add(time.Hour))
	id, err := meet.LoadTLS(cert, key, ca, "cohort")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n            int
		shm, connect string
	}{{2, "0", "start"}, {3, "0", "start"}, {7, "0", "start"}, {2, "1", "start"}, {3, "1", "start"}, {7, "1", "start"}, {5, "0", "demand"}} {
		if c.n == 7 && testing.Short() {
			continue
		}
		l := launcher{tls: id, env: []string{"COHORT_TCP_SHM=" + c.shm, "COHORT_TCP_CONNECT=" + c.connect,
			"COHORT_TCP_TLS_CERT=" + cert, "COHORT_TCP_TLS_KEY=" + key, "COHORT_TCP_TLS_CA=" + ca}}
		want := cohorttest.Bits(t, cohorttest.Goroutines{}, c.n)
		if got := cohorttest.Bits(t, l, c.n); got != want {
			t.Errorf("%d ranks, shared memory %s, connections made by %s: tcp over TLS gives %s, local %s", c.n, c.shm, c.connect, got, want)
		}
	}
}

// TestWrongCertificatesAreErrors checks that certificates that cannot be are an error before any rank is waited for.
func TestWrongCertificatesAreErrors(t *testing.T) {
	cert, key, ca := certify(t, "cohort", time.Now().Add(time.Hour))
	_, _, otherCA := certify(t, "cohort", time.Now().Add(time.Hour))
	oldCert, oldKey, oldCA := certify(t, "cohort", time.Now().Add(-24*time.Hour))
	secret := filepath.Join(t.TempDir(), "secret")
	if err := meet.NewSecret().WriteFile(secret); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, cert, key, ca, name, text string }{
		{"another authority", cert, key, otherCA, "", "authority"},
		{"expired", oldCert, oldKey, oldCA, "", "expired"},
		{"another name", cert, key, ca, "job.example", "job.example"},
		{"no certificate there", cert + "x", key, ca, "", cert + "x"},
		{"no authority there", cert, key, ca + "x", "", ca + "x"},
		{"no key given", cert, "", ca, "", "COHORT_TCP_TLS_KEY"},
		{"a name alone", "", "", "", "cohort", "COHORT_TCP_TLS_CERT"},
	} {
		_, err := tcp.Open(context.Background(), tcp.Config{Config: backend.Config{Rank: 1, Size: 2, Job: "job"}, Coordinator: "127.0.0.1:1", SecretFile: secret,
			TLSCert: c.cert, TLSKey: c.key, TLSCA: c.ca, TLSName: c.name})
		if !errors.Is(err, backend.ErrInit) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
