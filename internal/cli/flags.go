package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// value is a flag's value that is read by a function.
type value struct {
	name string // of the value, in help texts
	text func() string
	set  func(string) error
}

func (v *value) String() string     { return v.text() }
func (v *value) Set(s string) error { return v.set(s) }
func (v *value) Type() string       { return v.name }

// Func adds a flag whose value set reads. The value is called name in help texts. initial is the
// default to show there, "" for none. short may be "".
func Func(f *pflag.FlagSet, flag, short, name, initial, usage string, set func(string) error) {
	text := initial
	f.VarP(&value{name, func() string { return text }, func(s string) error { text = s; return set(s) }}, flag, short, usage)
}

// Number adds a flag for a whole number from lo to hi. *p holds the default; 0 is not shown.
func Number(f *pflag.FlagSet, p *int, flag, short string, lo, hi int, usage string) {
	text := func() string { return strconv.Itoa(*p) }
	f.VarP(&value{"N", text, func(s string) error {
		v, err := strconv.Atoi(s)
		if err != nil || v < lo || v > hi {
			return fmt.Errorf("want a whole number from %d to %d", lo, hi)
		}
		*p = v
		return nil
	}}, flag, short, usage)
}

// Duration adds a flag for a time, which may be 0 only if zero is set. *p holds the default; 0 is not shown.
func Duration(f *pflag.FlagSet, p *time.Duration, flag string, zero bool, usage string) {
	text := func() string {
		if *p == 0 {
			return ""
		}
		return p.String()
	}
	f.Var(&value{"TIME", text, func(s string) error {
		v, err := time.ParseDuration(s)
		switch {
		case err != nil && s != "0":
			return errors.New("want a time with a unit, such as 500ms, 30s or 1h30m")
		case v < 0:
			return errors.New("want a time that is not negative")
		case v == 0 && !zero:
			return errors.New("want a time above 0, such as 500ms, 30s or 1h30m")
		}
		*p = v
		return nil
	}}, flag, usage)
}

// Choice adds a flag that takes one of a few words, and completes them in a shell. *p holds the
// default; "" is not shown.
func Choice(cmd *cobra.Command, p *string, flag, usage string, words ...string) {
	set := func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("want %s%s", list(words), DidYouMean(s, words))
		}
		*p = s
		return nil
	}
	cmd.Flags().Var(&value{"WORD", func() string { return *p }, set}, flag, usage)
	Complete(cmd, flag, words...)
}

// Complete makes the shell complete a flag's value from words.
func Complete(cmd *cobra.Command, flag string, words ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // there is no such flag, or it has words already
	}
}

// list joins words as English does: a, b or c.
func list(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
