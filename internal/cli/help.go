package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// width is the number of columns that help texts use.
const width = 80

// section is the annotation of a flag that names its section of the help text.
const section = "cli_section"

// Section puts flags of a command under a title in the help text. Sections appear in the order in
// which their first flags were added; flags in none come first, under "Flags".
func Section(cmd *cobra.Command, title string, flags ...string) {
	for _, name := range flags {
		if err := cmd.Flags().SetAnnotation(name, section, []string{title}); err != nil {
			panic(err) // there is no such flag
		}
	}
}

// writeHelp writes a command's help text: a usage line, a paragraph, commands, flags, and examples.
func writeHelp(cmd *cobra.Command, w io.Writer) {
	var b strings.Builder
	use := cmd.UseLine()
	if cmd.HasAvailableSubCommands() && !cmd.Runnable() {
		use = cmd.CommandPath() + " COMMAND"
	}
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	fmt.Fprintf(&b, "Usage: %s\n\n%s\n", use, strings.TrimSpace(about))
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() || c.Name() == "help" {
				fmt.Fprintf(&b, "  %-*s %s\n", cmd.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	writeFlags(cmd, &b)
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", strings.Trim(cmd.Example, "\n"))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nTry '%s COMMAND --help' for more about a command.\n", cmd.CommandPath())
	}
	io.WriteString(w, b.String())
}

func writeFlags(cmd *cobra.Command, b *strings.Builder) {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	var titles []string
	sections := map[string]*pflag.FlagSet{}
	add := func(f *pflag.Flag) {
		title := "Flags"
		if a := f.Annotations[section]; len(a) > 0 {
			title = a[0]
		}
		if sections[title] == nil {
			sections[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
			sections[title].SortFlags = false
			titles = append(titles, title)
		}
		if f.Name == "help" {
			f.Usage = "show this help"
		}
		if f.Name == "version" {
			f.Usage = "print the version"
		}
		sections[title].AddFlag(f)
	}
	cmd.Flags().SortFlags = false
	first := func(f *pflag.Flag) bool { return len(f.Annotations[section]) == 0 }
	for _, now := range []bool{true, false} {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if first(f) == now && !f.Hidden {
				add(f)
			}
		})
	}
	for _, title := range titles {
		fmt.Fprintf(b, "\n%s:\n%s", title, sections[title].FlagUsagesWrapped(width))
	}
}
