package meet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
	file string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.file, a.key = a.sign(t, "ca", a.cert, nil)
	return a
}

// sign writes a certificate and its key, and returns the file of the certificate.
func (a *authority) sign(t testing.TB, name string, cert *x509.Certificate, by *authority) (string, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := cert, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	der2, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(a.dir, name)
	for path, block := range map[string]*pem.Block{file + ".pem": {Type: "CERTIFICATE", Bytes: der}, file + ".key": {Type: "PRIVATE KEY", Bytes: der2}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file + ".pem", key
}

// issue makes a certificate as f leaves it and loads it.
func (a *authority) issue(t testing.TB, name, want string, f func(*x509.Certificate)) (*TLS, error) {
	t.Helper()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if f != nil {
		f(cert)
	}
	file, _ := a.sign(t, "cert", cert, a)
	return LoadTLS(file, filepath.Join(a.dir, "cert.key"), a.file, want)
}

func testTLS(t testing.TB, name string) *TLS {
	t.Helper()
	c, err := newAuthority(t).issue(t, name, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func secured(rank int, t *TLS) *Identity {
	id := identity(rank)
	id.TLS = t
	return id
}

func uris(t testing.TB, ranks ...int) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		for _, r := range ranks {
			u, err := url.Parse(rankURI("job", r))
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
	}
}

func TestTLSRequiresCertificatesOfJob(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	make := func(by *authority, name string, f func(*x509.Certificate)) *TLS {
		c, err := by.issue(t, name, name, f)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	plain := make(a, "job.example", nil)
	elsewhere := make(other, "job.example", nil)
	elsewhere.pool = plain.pool // it would trust the others
	named := make(a, "another.example", nil)
	named.Name = "job.example"
	one, two, both := make(a, "job.example", uris(t, 1)), make(a, "job.example", uris(t, 2)), make(a, "job.example", uris(t, 1, 2))
	for _, c := range []struct {
		name           string
		client, server *TLS
		ok             bool
	}{
		{"one certificate", plain, plain, true},
		{"of their ranks", one, two, true},
		{"of several ranks", both, both, true},
		{"of a rank, and of all", one, plain, true},
		{"client of another authority", elsewhere, plain, false},
		{"server of another authority", plain, elsewhere, false},
		{"client of another name", named, plain, false},
		{"server of another name", plain, named, false},
		{"client of another rank", two, plain, false},
		{"server of another rank", plain, one, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, y := sockets(t)
			cc, sc, err1, err2 := shakeHands(x, y, secured(1, c.client), 2, Peer, secured(2, c.server))
			if !c.ok {
				if err1 == nil || err2 == nil {
					t.Fatalf("client %v, server %v: want errors", err1, err2)
				}
				r1, _ := err1.(*Refusal)
				r2, _ := err2.(*Refusal)
				if r1 == nil || r2 == nil || r1.Reason != FailedTLS && r2.Reason != FailedTLS {
					t.Errorf("client %v, server %v: neither names TLS as the cause", err1, err2)
				}
				return
			}
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			state := cc.Conn.(*tls.Conn).ConnectionState()
			if state.Version != tls.VersionTLS13 || len(state.PeerCertificates) != 1 || state.DidResume {
				t.Errorf("%+v", state)
			}
			talk(t, cc, sc)
			talk(t, sc, cc)
		})
	}
}

// TestCertificatesNameRanksOfFirstWorld has the ranks 4 and 7 of a job meet again, as ranks 1 and 2 of a later world.
func TestCertificatesNameRanksOfFirstWorld(t *testing.T) {
	a := newAuthority(t)
	of := func(rank int) *TLS {
		c, err := a.issue(t, "job.example", "job.example", uris(t, rank))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, c := range []struct {
		client, server int // whose certificates they have
		ok             bool
	}{{4, 7, true}, {7, 4, false}, {7, 7, false}, {4, 4, false}, {1, 7, false}, {4, 2, false}} {
		client, server := secured(1, of(c.client)), secured(2, of(c.server))
		for _, id := range []*Identity{client, server} {
			id.Job, id.Size, id.First = "job.3", 3, First{Job: "job", Ranks: []int{0, 4, 7}}
		}
		x, y := sockets(t)
		_, _, err1, err2 := shakeHands(x, y, client, 2, Peer, server)
		if ok := err1 == nil && err2 == nil; ok != c.ok {
			t.Errorf("certificates of ranks %d and %d: %v, %v", c.client, c.server, err1, err2)
		}
	}
}

// TestManInTheMiddleIsDetected relays between two ranks that use TLS. The relay has a certificate of the same authority
// and passes on the proofs before TLS. It does not have the secret, and its two TLS connections differ.
func TestManInTheMiddleIsDetected(t *testing.T) {
	c := testTLS(t, "job.example")
	client, left := sockets(t)
	right, server := sockets(t)
	var err1, err2 error
	done := make(chan struct{}, 3)
	go func() {
		_, err1 = Client(context.Background(), client, secured(1, c), 2, Peer)
		done <- struct{}{}
	}()
	go func() {
		_, err2 = Server(context.Background(), server, secured(2, c))
		done <- struct{}{}
	}()
	for _, step := range []struct {
		from, to net.Conn
		n        int64
	}{{left, right, helloSize}, {right, left, replySize}, {left, right, proofSize}} {
		if _, err := io.CopyN(step.to, step.from, step.n); err != nil {
			t.Fatal(err)
		}
	}
	toClient := c.wrap(&Conn{Conn: left, Rank: 1}, "job")
	toServer := c.wrap(&Conn{Conn: right, Rank: 2, Dialed: true}, "job")
	go func() {
		io.Copy(toServer, toClient)
		toServer.Close()
		done <- struct{}{}
	}()
	io.Copy(toClient, toServer)
	toClient.Close()
	for range 3 {
		<-done
	}
	if err1 == nil {
		t.Error("the client takes who stands between for its server")
	}
	reason(t, err2, WrongProof, "a third party is in between")
}

func TestLoadTLSChecksFiles(t *testing.T) {
	a := newAuthority(t)
	for _, c := range []struct {
		name, want string
		f          func(*x509.Certificate)
	}{
		{"another name", "job.example", func(c *x509.Certificate) { c.DNSNames = []string{"else.example"} }},
		{"for servers only", "incompatible key usage", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }},
		{"for clients only", "incompatible key usage", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }},
		{"too old", "expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }},
	} {
		_, err := a.issue(t, "job.example", "job.example", c.f)
		has(t, err, nil, "TLS: certificate", c.want)
	}
	if _, err := a.issue(t, "job.example", "job.example", nil); err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(a.dir, "cert.pem"), filepath.Join(a.dir, "cert.key")
	for _, c := range [][5]string{
		{cert, key, a.file, "", "cohort"}, // the name that is taken
		{cert, "", a.file, "n", "COHORT_TCP_TLS_KEY"},
		{"", "", "", "n", "COHORT_TCP_TLS_CERT"},
		{cert + "x", key, a.file, "n", "cert.pemx"},
		{cert, filepath.Join(a.dir, "ca.key"), a.file, "n", "does not match"},
		{cert, key, key, "n", "contains no certificate"},
		{cert, key, "nowhere", "n", "nowhere"},
	} {
		_, err := LoadTLS(c[0], c[1], c[2], c[3])
		has(t, err, nil, c[4])
	}
	if _, err := newAuthority(t).issue(t, "job.example", "job.example", nil); err != nil {
		t.Error(err)
	}
	foreign := newAuthority(t)
	_, err := LoadTLS(cert, key, foreign.file, "job.example")
	has(t, err, nil, "unknown authority")
}

// TestCertificateNameOfEscapedJob has a job whose name needs escaping.
func TestCertificateNameOfEscapedJob(t *testing.T) {
	for job, want := range map[string]string{"job": "cohort://job/job/3", "a b/c": "cohort://job/a%20b%2Fc/3"} {
		u, err := url.Parse(rankURI(job, 3))
		if err != nil || u.String() != want {
			t.Errorf("%v, %v, want %s", u, err, want)
		}
	}
}
