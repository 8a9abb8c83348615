package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

func ranksFlag(f *pflag.FlagSet, ranks *int) {
	cli.Number(f, ranks, "ranks", "n", 1, spawn.MaxRanks, "start this many ranks (default: one per usable processor)")
}

// splitPrograms splits what follows the flags of a command into programs: at each lone ":", unless "--" stands before
// the program. ranks is the -n of the first.
func splitPrograms(c *cobra.Command, ranks int) (all spawn.Programs, err error) {
	for f := c.Flags(); ; {
		args := f.Args()
		end := slices.Index(args, ":")
		if end < 0 || f.ArgsLenAtDash() >= 0 {
			end = len(args)
		}
		switch {
		case end > 0:
		case len(all) > 0 || len(args) > 0:
			return nil, cli.Usagef("missing PROGRAM before or after ':', which separates programs")
		default:
			return nil, cli.Usagef("missing PROGRAM: the executable or Go folder to run")
		}
		all = append(all, spawn.Program{Path: args[0], Args: args[1:end], Ranks: ranks})
		if end == len(args) {
			break
		}
		f, ranks = pflag.NewFlagSet("", pflag.ContinueOnError), 0
		f.SetInterspersed(false)
		f.Usage = func() {}
		ranksFlag(f, &ranks)
		err := f.Parse(args[end+1:])
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) && c.Flags().Lookup(unknown.GetSpecifiedName()) != nil {
			return nil, cli.Usagef("--%s: only -n may follow ':'; other flags stand before the first PROGRAM", unknown.GetSpecifiedName())
		}
		if err != nil {
			return nil, c.FlagErrorFunc()(c, err)
		}
	}
	if len(all) == 1 {
		return all, nil
	}
	for i, p := range all {
		if p.Ranks == 0 {
			return nil, cli.Usagef("missing -n before %s: each of several programs needs it; if ':' is an argument of %s, write -- before %[2]s",
				p.Path, all[max(i-1, 0)].Path)
		}
	}
	if n := all.Ranks(); n > spawn.MaxRanks {
		return nil, cli.Usagef("%d ranks in all, want at most %d", n, spawn.MaxRanks)
	}
	return all, nil
}

// find replaces the names of programs by the paths that look finds. folders has those that are to be built.
func find(programs spawn.Programs, look func(name string) (path string, folder bool, err error)) (folders map[string]string, err error) {
	folders = map[string]string{}
	for i := range programs {
		path, folder, err := look(programs[i].Path)
		if err != nil {
			return nil, err
		}
		if programs[i].Path = path; folder {
			folders[path] = ""
		}
	}
	return folders, nil
}

// build builds the programs that are folders, each folder once. remove, which is never nil, removes the executables.
func build(programs spawn.Programs, folders map[string]string, signals <-chan os.Signal, k *spawn.Keeper) (remove func(), status int, err error) {
	var built []func()
	remove = func() {
		for _, f := range built {
			f()
		}
	}
	for i := range programs {
		p := &programs[i]
		exe, folder := folders[p.Path]
		if folder && exe == "" {
			var f func()
			if exe, f, status, err = buildFolder(p.Path, signals, k); err != nil {
				return remove, status, err
			}
			folders[p.Path], built = exe, append(built, f)
		}
		if folder {
			p.Path = exe
		}
	}
	return remove, 0, nil
}

// buildFolder builds a Go program. A signal that would end the launcher ends the build.
func buildFolder(folder string, signals <-chan os.Signal, k *spawn.Keeper) (path string, remove func(), status int, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stopped := func(n syscall.Signal) error { return fmt.Errorf("stopped while building: %v", n) }
	built := make(chan struct{})
	go func() {
		defer close(built)
		path, remove, err = spawn.Build(ctx, folder, k)
	}()
	if n := job.Prepare(signals, built, func(n syscall.Signal) { cancel(stopped(n)) }); n != 0 {
		if err == nil { // it came when the build had finished
			remove()
			err = stopped(n)
		}
		return "", nil, 128 + int(n), err
	}
	return path, remove, cli.StatusUsage, err
}
