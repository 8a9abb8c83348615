package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOptions_Forms(t *testing.T) {
	type values struct {
		n       int
		timeout time.Duration
		json    bool
		plot    string
	}
	for _, c := range []struct {
		line string
		own  bool
		want values
		rest string
		says string
	}{
		{"-n 4 a b", false, values{n: 4}, "a b", ""},
		{"-n4 a", false, values{n: 4}, "a", ""},
		{"-n=4 a", false, values{n: 4}, "a", ""},
		{"a -n 4 b --json", false, values{n: 4, json: true}, "a b", ""},
		{"--timeout 3s --json=true a", false, values{timeout: 3 * time.Second, json: true}, "a", ""},
		{"--timeout=3s --json=false a", false, values{timeout: 3 * time.Second}, "a", ""},
		{"--json --json=false", false, values{}, "", ""},
		{"--plot=a=b", false, values{plot: "a=b"}, "", ""},
		{"--plot -x", false, values{plot: "-x"}, "", ""},
		{"- -n 2", false, values{n: 2}, "-", ""},
		{"-n 2 -- -n 3", false, values{n: 2}, "-n 3", ""},
		{"-n 2 prog -n 3 --json", true, values{n: 2}, "prog -n 3 --json", ""},
		{"-n 2 -- prog -n 3", true, values{n: 2}, "prog -n 3", ""},
		{"--", true, values{}, "", ""},
		{"-x", false, values{}, "", "there is no option -x"},
		{"--=3", false, values{}, "", "there is no option --"},
		{"--n 3", false, values{}, "", "there is no option --n"},
		{"--json=yes", false, values{}, "", "want true or false"},
		{"a -n", false, values{}, "", "-n needs a value"},
	} {
		var got values
		o := &options{stopAtArgument: c.own}
		o.number(&got.n, 'n', "", "N", "", 1, 9)
		o.duration(&got.timeout, "timeout", "")
		o.flag(&got.json, 0, "json", "")
		o.text(&got.plot, "plot", "FILE", "")
		rest, err := o.parse(strings.Fields(c.line))
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want %q", c.line, err, c.says)
			}
			continue
		}
		if err != nil || got != c.want || !slices.Equal(rest, strings.Fields(c.rest)) {
			t.Errorf("%s: got %+v, %q, %v, want %+v, %q", c.line, got, rest, err, c.want, c.rest)
		}
	}
}

func FuzzOptions(f *testing.F) {
	f.Add("-n 4 --json a")
	f.Fuzz(func(t *testing.T, line string) {
		var n int
		var s string
		var b bool
		o := &options{}
		o.number(&n, 'n', "ranks", "N", "", 1, 9)
		o.text(&s, "plot", "FILE", "")
		o.flag(&b, 'j', "json", "")
		if _, err := o.parse(strings.Fields(line)); err == nil && (n < 0 || n > 9) {
			t.Errorf("%q: n is %d", line, n)
		}
	})
}

func TestDidYouMean(t *testing.T) {
	names := []string{"--timeout", "--tag", "--bind", "--backend"}
	for written, want := range map[string]string{
		"--timeot": "--timeout", "--tags": "--tag", "--bnd": "--bind", "--back": "--backend", "--xyzzy": "", "--time": "--timeout",
	} {
		got := didYouMean(written, names)
		if want == "" && got != "" || want != "" && got != "; did you mean "+want+"?" {
			t.Errorf("%s: got %q, want %q", written, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"kitten", "sitting", 3}, {"", "ab", 2}, {"ab", "", 2}, {"ab", "ba", 2}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
