package meet

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// SecretSize is the length of a secret in bytes.
const SecretSize = 32

// A Secret is shared by the ranks of a job and known to no one else. It never appears in output.
type Secret struct{ key *[SecretSize]byte }

// NewSecret returns a secret of random bytes.
func NewSecret() Secret {
	key := new([SecretSize]byte)
	rand.Read(key[:]) // it cannot fail: crypto/rand ends the process first
	return Secret{key}
}

// Valid reports whether s holds a secret. The zero Secret does not.
func (s Secret) Valid() bool { return s.key != nil }

// Format implements fmt.Formatter: whatever the verb, the secret is not shown.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, "[secret]") }

// MarshalText implements encoding.TextMarshaler by returning an error, so that a secret is not written
// to a file by mistake.
func (s Secret) MarshalText() ([]byte, error) { return nil, errors.New("a secret cannot be marshaled") }

// WriteFile writes the secret to a new file that only its owner can read.
func (s Secret) WriteFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		if err = errors.Join(s.Send(f), f.Close()); err != nil {
			os.Remove(path)
		}
	}
	if err != nil {
		return fmt.Errorf("writing the secret: %w", err)
	}
	return nil
}

// Send writes the secret in the form of its file, for a pipe to a rank: 64 hexadecimal digits and
// a newline.
func (s Secret) Send(w io.Writer) error {
	if !s.Valid() {
		return errors.New("the secret is empty")
	}
	_, err := w.Write(append(hex.AppendEncode(nil, s.key[:]), '\n'))
	return err
}

// ReadSecretFile reads a secret, 32 raw bytes or 64 hexadecimal digits, from a regular file that belongs to this user
// and that no other user can read or write. A file that is mounted into a container may belong to root, and others may
// read it: see mounted.
func ReadSecretFile(path string) (Secret, error) {
	f, err := openPrivate(path)
	if err != nil {
		return Secret{}, fmt.Errorf("the secret of the job: %w", err)
	}
	defer f.Close()
	s, err := ReadSecret(f)
	if err != nil {
		return Secret{}, fmt.Errorf("%w (%s)", err, path)
	}
	return s, nil
}

// ReadSecret reads a secret from a pipe or another descriptor, to its end.
func ReadSecret(r io.Reader) (Secret, error) {
	// One byte more than the longest form, "\r\n" at its end, to see what is too long.
	b, err := io.ReadAll(io.LimitReader(r, 2*SecretSize+3))
	defer clear(b)
	if err != nil {
		return Secret{}, fmt.Errorf("the secret of the job: %w", err)
	}
	key := new([SecretSize]byte)
	if len(b) == SecretSize {
		copy(key[:], b)
	} else if n := len(strings.TrimRight(string(b), "\r\n")); n == 2*SecretSize {
		if _, err := hex.Decode(key[:], b[:n]); err != nil {
			// The decoder's error shows a character of it.
			return Secret{}, errors.New("the secret of the job: want 64 hexadecimal digits; not all of the 64 characters are")
		}
	} else {
		return Secret{}, fmt.Errorf("the secret of the job: %d bytes, want %d random bytes, or %d hexadecimal digits; "+
			"openssl rand -hex %d makes one", len(b), SecretSize, 2*SecretSize, SecretSize)
	}
	// That 32 random bytes have fewer than 8 different values does not happen: the chance is below 2^-100.
	if n := len(slices.Compact(slices.Sorted(slices.Values(key[:])))); n < 8 {
		return Secret{}, fmt.Errorf("the secret of the job has only %d different bytes, so it is not random; "+
			"openssl rand -hex %d makes one", n, SecretSize)
	}
	return Secret{key}, nil
}
