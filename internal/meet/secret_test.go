package meet

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecretFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	s := NewSecret()
	if err := s.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	got, err := ReadSecretFile(path)
	if err != nil || *got.key != *s.key {
		t.Errorf("read another secret, %v", err)
	}
	has(t, s.WriteFile(path), os.ErrExist)
	if *NewSecret().key == *s.key {
		t.Error("two secrets are the same")
	}
	none := path + " of none"
	has(t, Secret{}.WriteFile(none), nil, "secret is empty")
	if _, err := os.Stat(none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of an empty secret: %v", err)
	}
}

func TestSecretFormsAreChecked(t *testing.T) {
	raw := []byte("0123456789abcdefghijklmnopqrstuv") // 32 bytes
	digits := hex.EncodeToString(raw)
	for _, c := range []struct{ name, text, want string }{
		{"bytes", string(raw), ""},
		{"digits", digits, ""},
		{"digits and newline", digits + "\n", ""},
		{"digits and both", strings.ToUpper(digits) + "\r\n", ""},
		{"empty", "", "0 bytes, want 32"},
		{"short", string(raw[1:]), "31 bytes"},
		{"long", string(raw) + "1", "33 bytes"},
		{"far too long", strings.Repeat("x", 1<<20), "67 bytes"},
		{"no digits", "x" + digits[1:], "want 64 hexadecimal digits"},
		{"zeros", strings.Repeat("\x00", 32), "not random"},
		{"zero digits", strings.Repeat("0", 64), "not random"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := ReadSecret(strings.NewReader(c.text))
			if c.want != "" {
				has(t, err, nil, c.want)
				if len(c.text) > 30 && strings.Contains(err.Error(), c.text[1:20]) {
					t.Errorf("%q shows what is in the file", err)
				}
			} else if err != nil || !bytes.Equal(s.key[:], raw) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestSecretIsNeverPrinted prints a secret in all the ways there are.
func TestSecretIsNeverPrinted(t *testing.T) {
	s := NewSecret()
	id := &Identity{Job: "job", Secret: s}
	shown := fmt.Sprint(s, &s, id, *id)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%X", "%q", "%d", "%p"} {
		shown += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, id)
	}
	if b, err := json.Marshal(id); err == nil {
		t.Errorf("it can be marshaled: %s", b)
	}
	for _, form := range []string{string(s.key[:4]), hex.EncodeToString(s.key[:4]), strings.ToUpper(hex.EncodeToString(s.key[:4])),
		strings.Trim(fmt.Sprint(s.key[:4]), "[]"), strings.TrimSuffix(fmt.Sprintf("%#v", s.key[:4]), "}")[7:]} {
		if strings.Contains(shown, form) {
			t.Errorf("it is shown as %q", form)
		}
	}
}
