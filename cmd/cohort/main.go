package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/cohort-hpc/cohort/internal/remote"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// statusUsage is the status for a command line that cannot be carried out.
const statusUsage = 2

// command is one of the subcommands.
type command struct {
	name, args, summary string
	// setup declares the options, and returns what to do with the arguments.
	setup func(*options) func(args []string) (status int, err error)
	// own says that what follows the first argument is not for this command.
	own   bool
	about string // the rest of the help text
}

func commands() []command {
	return []command{runCommand, doctorCommand, benchCommand, reportCommand, versionCommand}
}

func main() {
	spawn.Init()
	if len(os.Args) == 3 { // for processes of cohort's own
		switch os.Args[1] {
		case rankCommand:
			os.Exit(becomeRank(os.Args[2]))
		case describeCommand:
			os.Exit(describeLibrary(os.Args[2]))
		case remote.AgentCommand:
			os.Exit(remote.Agent(os.Stdin, os.Stdout, os.Args[2], version()))
		}
	}
	if os.Getenv(envProbe) != "" {
		os.Exit(probe())
	}
	os.Exit(dispatch(os.Args[1:], os.Stdout, os.Stderr))
}

// dispatch runs a command line and returns its status.
func dispatch(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		overview(stderr)
		return statusUsage
	}
	name := args[0]
	switch name {
	case "help", "--help", "-h":
		if len(args) > 1 {
			return dispatch([]string{args[1], "--help"}, stdout, stderr)
		}
		overview(stdout)
		return 0
	case "--version":
		name = "version"
	}
	var names []string
	for _, c := range commands() {
		if c.name == name {
			return c.run(args[1:], stdout, stderr)
		}
		names = append(names, c.name)
	}
	fmt.Fprintf(stderr, "cohort: there is no command %q%s\nTry 'cohort help'.\n", name, didYouMean(name, names))
	return statusUsage
}

func (c command) run(args []string, stdout, stderr io.Writer) int {
	o := &options{stopAtArgument: c.own}
	help := false
	do := c.setup(o)
	o.flag(&help, 'h', "help", "show this help")
	rest, err := o.parse(args)
	if help {
		c.help(o, stdout)
		return 0
	}
	status := statusUsage
	if err == nil {
		status, err = do(rest)
	}
	if err != nil {
		fmt.Fprintf(stderr, "cohort %s: %v\n", c.name, err)
		var u *usageError
		if errors.As(err, &u) {
			fmt.Fprintf(stderr, "Try 'cohort %s --help'.\n", c.name)
		}
	}
	return status
}

// usageError is a command line that is wrong in itself.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

func overview(w io.Writer) {
	fmt.Fprint(w, "cohort runs programs as many ranks that work as one.\n\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-8s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\n'cohort COMMAND --help' says more about each.\n")
}

func (c command) help(o *options, w io.Writer) {
	usage := "cohort " + c.name + " [options]"
	if c.args != "" {
		usage += " " + c.args
	}
	fmt.Fprintf(w, "Usage: %s\n\n%s\n\nOptions:\n", usage, c.summary)
	o.help(w)
	if c.about != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(c.about))
	}
}

var versionCommand = command{
	name:    "version",
	summary: "Say which version of cohort this is.",
	setup: func(*options) func([]string) (int, error) {
		return func(args []string) (int, error) {
			if len(args) > 0 {
				return statusUsage, usagef("unexpected argument %q", args[0])
			}
			_, err := fmt.Printf("cohort %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			if err != nil {
				return 1, err
			}
			return 0, nil
		}
	},
}

// version returns the module's version as the go command recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
