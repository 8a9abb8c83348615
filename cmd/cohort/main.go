package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/remote"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

func main() {
	spawn.Init()
	if len(os.Args) == 3 { // processes that this command starts itself
		switch os.Args[1] {
		case rankCommand:
			os.Exit(becomeRank(os.Args[2]))
		case describeCommand:
			os.Exit(describeLibrary(os.Args[2]))
		case remote.AgentCommand:
			os.Exit(remote.Agent(os.Stdin, os.Stdout, os.Args[2], version()))
		}
	}
	if len(os.Args) == 2 && os.Args[1] == probeCommand {
		os.Exit(probe())
	}
	os.Exit(cli.Execute(newCommand(), os.Args[1:], os.Stdout, os.Stderr))
}

// newCommand returns the command with its subcommands.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:     "cohort",
		Short:   "Start the ranks of a program",
		Long:    "Start the ranks of a program, check what a machine offers them, measure their\ncommunication, and find out why a job hangs.",
		Example: "  cohort run -n 4 ./myprogram\n  cohort doctor",
		Version: version(),
	}
	root.SetVersionTemplate(fmt.Sprintf("cohort %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH))
	root.AddCommand(newRun(), newScale(), newDoctor(), newBench(), newReport())
	cobra.EnableCommandSorting = false
	return root
}

// version returns the module's version as the go command recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
