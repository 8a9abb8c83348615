package must

import (
	"errors"
	"testing"
)

func TestReturnGivesTheErrorThatEndsTheRank(t *testing.T) {
	want := errors.New("want")
	two := func(err error) (int, bool, error) { return 7, true, err }
	for name, body := range map[string]func(err error) error{
		"return": func(err error) error { return err },
		"OK":     func(err error) error { OK(err); return nil },
		"Get":    func(err error) error { Get(7, err); return nil },
		"Get2":   func(err error) error { Get2(two(err)); return nil },
	} {
		if err := Return(body)(want); err != want {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
		if err := Return(body)(nil); err != nil {
			t.Errorf("%s: got %v, want nil", name, err)
		}
	}
	if x, y := Get2(two(nil)); x != 7 || !y || Get(x, nil) != 7 {
		t.Errorf("got %d and %v, want 7 and true", x, y)
	}
	defer func() {
		if p := recover(); p != "another panic" {
			t.Errorf("recovered %v", p)
		}
	}()
	Return(func(int) error { panic("another panic") })(0)
}
