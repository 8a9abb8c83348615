package cli

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// values are what the commands of the test program receive.
type values struct {
	n    int
	time time.Duration
	json bool
	file string
	word string
	args []string
}

// program returns a command with two subcommands: take, whose flags may stand anywhere, and run, which
// leaves what follows its first argument alone.
func program(v *values) *cobra.Command {
	root := &cobra.Command{Use: "prog", Short: "Show the style", Version: "1"}
	for _, name := range []string{"take", "run"} {
		c := &cobra.Command{
			Use: name + " [flags] FILE", Short: "Do " + name, Example: "  prog " + name + " -n 2 a",
			RunE: func(_ *cobra.Command, args []string) error {
				v.args = args
				if slices.Contains(args, "fail") {
					return Exit(7, errors.New("no luck"))
				}
				return Exit(0, nil)
			},
		}
		c.Flags().SetInterspersed(name != "run")
		Number(c.Flags(), &v.n, "ranks", "n", 1, 9, "number of ranks")
		Duration(c.Flags(), &v.time, "timeout", false, "stop after this time")
		c.Flags().BoolVar(&v.json, "json", false, "print JSON")
		c.Flags().StringVar(&v.file, "plot", "", "draw to `FILE`")
		Choice(c, &v.word, "bind", "bind ranks to this", "core", "numa")
		Section(c, "Drawing", "plot")
		root.AddCommand(c)
	}
	return root
}

func run(args ...string) (v values, status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = Execute(program(&v), args, &out, &errs)
	return v, status, out.String(), errs.String()
}

func TestFlagsStandBeforeOrAfterArguments(t *testing.T) {
	for _, c := range []struct {
		line string
		want values
		rest string
	}{
		{"take -n 4 a b", values{n: 4}, "a b"},
		{"take -n4 a", values{n: 4}, "a"},
		{"take --ranks=4 a", values{n: 4}, "a"},
		{"take a -n 4 b --json", values{n: 4, json: true}, "a b"},
		{"take --timeout 3s --json=true a", values{time: 3 * time.Second, json: true}, "a"},
		{"take --json --json=false", values{}, ""},
		{"take --plot=a=b", values{file: "a=b"}, ""},
		{"take --plot -x", values{file: "-x"}, ""},
		{"take - -n 2", values{n: 2}, "-"},
		{"take -n 2 -- -n 3", values{n: 2}, "-n 3"},
		{"take --bind numa", values{word: "numa"}, ""},
		{"run -n 2 prog -n 3 --json", values{n: 2}, "prog -n 3 --json"},
		{"run -n 2 -- prog -n 3", values{n: 2}, "prog -n 3"},
	} {
		got, status, _, stderr := run(strings.Fields(c.line)...)
		rest := got.args
		got.args = nil
		if status != 0 || got.n != c.want.n || got.time != c.want.time || got.json != c.want.json || got.file != c.want.file ||
			got.word != c.want.word || !slices.Equal(rest, strings.Fields(c.rest)) {
			t.Errorf("%s: got %+v, %q, status %d %s, want %+v, %q", c.line, got, rest, status, stderr, c.want, c.rest)
		}
	}
}

func TestUsageErrorsSuggestCorrections(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"", "Commands:"},
		{"tkae", `prog: unknown command "tkae"; did you mean take?`},
		{"help tkae", `prog help: unknown command "tkae"; did you mean take?`},
		{"take -x", "prog take: unknown shorthand flag: 'x' in -x\nTry 'prog take --help'.\n"},
		{"take --timeot 3s", "unknown flag: --timeot; did you mean --timeout?"},
		{"take -timeout 3s", "unknown shorthand flag: 't' in -timeout; did you mean --timeout?"},
		{"take --=3", "--=3"},
		{"take --json=yes", "--json yes: want true or false"},
		{"take -n 0", "-n 0: want a whole number from 1 to 9"},
		{"take -n four", "-n four: want a whole number from 1 to 9"},
		{"take a -n", "flag needs an argument: 'n' in -n"},
		{"take --plot", "flag needs an argument: --plot"},
		{"take --timeout 0s", "--timeout 0s: want a time above 0"},
		{"take --timeout -3s", "--timeout -3s: want a time that is not negative"},
		{"take --timeout ten", "want a time with a unit, such as 500ms"},
		{"completion", "want one SHELL: bash,"},
		{"completion csh", "want one SHELL: bash,"},
		{"completion bash extra", `unexpected argument "extra"`},
		{"take --bind cor", "--bind cor: want core or numa; did you mean core?"},
	} {
		_, status, stdout, stderr := run(strings.Fields(c.line)...)
		if status != StatusUsage || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("%s: got status %d, %q on stderr, %q on stdout, want status %d and %q", c.line, status, stderr, stdout, StatusUsage, c.want)
		}
	}
}

func TestExitStatusAndErrorOfCommand(t *testing.T) {
	if _, status, _, stderr := run("take", "fail"); status != 7 || stderr != "prog take: no luck\n" {
		t.Errorf("got status %d and %q, want 7 and the error", status, stderr)
	}
}

const takeHelp = `Usage: prog take [flags] FILE

Do take.

Flags:
  -n, --ranks N        number of ranks
      --timeout TIME   stop after this time
      --json           print JSON
      --bind WORD      bind ranks to this
  -h, --help           show this help

Drawing:
      --plot FILE   draw to FILE

Examples:
  prog take -n 2 a
`

func TestHelpIsAlikeInEveryForm(t *testing.T) {
	for _, line := range []string{"take --help", "take -h", "help take"} {
		if _, status, stdout, stderr := run(strings.Fields(line)...); status != 0 || stdout != takeHelp || stderr != "" {
			t.Errorf("%s: status %d, got %s%s\nwant %s", line, status, stdout, stderr, takeHelp)
		}
	}
	for _, line := range []string{"help", "--help", "-h"} {
		_, status, stdout, _ := run(line)
		for _, want := range []string{"Usage: prog COMMAND\n", "  take ", "  run ", "  completion ", "Try 'prog COMMAND --help'"} {
			if status != 0 || !strings.Contains(stdout, want) {
				t.Errorf("%s: status %d, got %s\nwant %q in it", line, status, stdout, want)
			}
		}
	}
}

func TestCompletionWorksInEveryShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if _, status, stdout, stderr := run("completion", shell); status != 0 || !strings.Contains(stdout, "prog") || stderr != "" {
			t.Errorf("%s: status %d, %d bytes, %s", shell, status, len(stdout), stderr)
		}
	}
	for _, c := range []struct{ line, want string }{
		{"__complete ta", "take"},
		{"__complete take --bi", "--bind"},
		{"__complete take --bind n", "numa"},
	} {
		if _, status, stdout, _ := run(strings.Fields(c.line)...); status != 0 || !strings.Contains(stdout, c.want) {
			t.Errorf("%s: status %d, got %q, want %q", c.line, status, stdout, c.want)
		}
	}
}

func FuzzExecute(f *testing.F) {
	f.Add("take -n 4 --json a")
	f.Fuzz(func(t *testing.T, line string) {
		if v, status, _, _ := run(strings.Fields(line)...); status == 0 && (v.n < 0 || v.n > 9) {
			t.Errorf("%q: n is %d", line, v.n)
		}
	})
}
