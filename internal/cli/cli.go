package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit statuses that every command shares.
const (
	StatusFailed = 1 // the command failed
	StatusUsage  = 2 // the command line is wrong
)

// exit is an error that carries an exit status.
type exit struct {
	status int
	err    error // nil: the command has reported the failure itself
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// Exit returns the error by which a command's RunE ends the program with a status. Execute prints err
// unless it is nil. Exit(0, nil) is nil.
func Exit(status int, err error) error {
	if status == 0 && err == nil {
		return nil
	}
	return &exit{status, err}
}

// usageError is an error in the command line itself.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// Usagef returns an error in the command line itself. Execute points to the help text after it and
// returns StatusUsage.
func Usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// Execute runs a command line and returns the exit status. Help goes to stdout, errors go to stderr.
// A command without arguments prints its help to stderr: that is a usage error. Execute may be called
// once for a root command.
func Execute(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetOut(stdout)
	root.SetErr(stderr)
	prepare(root)
	if len(args) == 0 && !root.Runnable() {
		writeHelp(root, stderr)
		return StatusUsage
	}
	cmd, err := root, unknownCommand(root, args)
	if err == nil {
		root.SetArgs(append([]string{}, args...)) // not nil: cobra would read os.Args
		cmd, err = root.ExecuteC()
	}
	if err == nil {
		return 0
	}
	status := StatusFailed
	var e *exit
	if errors.As(err, &e) {
		status, err = e.status, e.err
	}
	var usage *usageError
	isUsage := errors.As(err, &usage)
	if isUsage {
		status = StatusUsage
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", cmd.CommandPath(), err)
	}
	if isUsage {
		fmt.Fprintf(stderr, "Try '%s --help'.\n", cmd.CommandPath())
	}
	return status
}

// prepare gives a root command the style of this package.
func prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(cmd, cmd.OutOrStdout()) })
	root.SetUsageFunc(func(cmd *cobra.Command) error { writeHelp(cmd, cmd.OutOrStderr()); return nil })
	root.SetFlagErrorFunc(flagError)
	if !root.HasSubCommands() {
		return
	}
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Use, c.DisableFlagsInUseLine, c.Args = "completion SHELL", true, cobra.ArbitraryArgs
		c.RunE = func(*cobra.Command, []string) error { return Usagef("want one SHELL: bash, fish, powershell or zsh") }
		for _, shell := range c.Commands() {
			shell.Args = NoArgs
		}
	}
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command",
		Long:  "Show help for a command, or list the commands.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := unknownCommand(cmd.Root(), args); err != nil {
				return err
			}
			about, _, err := cmd.Root().Find(args)
			if err != nil {
				return Usagef("%v", err)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// unknownCommand reports a first argument that is not a command of root.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || root.Runnable() {
		return nil
	}
	if _, _, err := root.Find(args[:1]); err == nil || strings.HasPrefix(args[0], "__") { // cobra adds __complete when it runs
		return nil
	}
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return Usagef("unknown command %q%s", args[0], DidYouMean(args[0], names))
}

// flagError makes an error of pflag a usage error, in this package's words where that helps.
func flagError(cmd *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		invalid *pflag.InvalidValueError
	)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		written := cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName()) // -timeout for --timeout
		return Usagef("%v%s", err, didYouMean(written, names, "--"))
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand
		}
		cause := errors.Unwrap(err)
		if f.Value.Type() == "bool" {
			cause = errors.New("want true or false")
		}
		return Usagef("%s %s: %v", name, invalid.GetValue(), cause)
	}
	return Usagef("%v", err)
}

// DidYouMean returns "; did you mean X?" with the names that resemble what was written, or nothing.
func DidYouMean(written string, names []string) string { return didYouMean(written, names, "") }

func didYouMean(written string, names []string, prefix string) string {
	near := cobra.Command{SuggestionsMinimumDistance: 2}
	for _, n := range names {
		near.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	found := near.SuggestionsFor(written)
	if written == "" || len(found) == 0 {
		return ""
	}
	return "; did you mean " + prefix + strings.Join(found, " or "+prefix) + "?"
}

// NoArgs is for the Args of a command that takes no arguments.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("unexpected argument %q", args[0])
	}
	return nil
}

// OneArg is for the Args of a command that takes one argument; what describes it, such as
// "FOLDER: where the files are".
func OneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return Usagef("got %d arguments, want one %s", len(args), what)
		}
		return nil
	}
}
