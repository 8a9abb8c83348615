package main

import (
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/sddp"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// options are the flags and arguments of a command line.
type options struct {
	dir        string // of the case
	iterations int
	passes     int
	openings   int
	seed       uint64
	blocks     int     // of openings
	lambda     float64 // of CVaR
	alpha      float64 // of CVaR
	gap        float64
	gapEvery   int
	gapMost    int // scenarios of a test of the gap
	stall      int
	stallLeast float64
	timeLimit  time.Duration
	scenarios  int
	out        string
	policy     string
	changed    bool   // the policy may be of another case
	inflows    string // file of the inflows of the scenarios
	paths      string // file for a table of all scenarios and stages
	warm       string // folder of a policy to begin with
	selection  bool   // of cuts
	multiCut   bool
	sampling   sddp.Sampling
	json       bool   // print the result as JSON
	jsonFile   string // or write it to this file
	report     string // file of the page
	quiet      bool
	buses      bool
	threads    int    // 0: from the environment
	pin        string // empty: from the environment
	solver     string
	resilient  bool
	checkpoint string // folder
	every      int    // iterations between checkpoints
	resume     bool
	resumeDir  string // the folder given with --resume, if any
}

// newRoot returns the command sddp. Its subcommands run job with what they do.
func newRoot(stdout, stderr *os.File) *cobra.Command {
	root := &cobra.Command{
		Use:   "sddp",
		Short: "Plan the operation of a hydrothermal power system",
		Long: `Plan the operation of a hydrothermal power system by stochastic dual dynamic
programming: how much water to use now, and how much to keep.

CASE is a folder with case.json, buses.json, thermals.json, reservoirs.json and
lines.json, which sddp/model.md describes. train and simulate share their
work among the ranks of a job and the threads of each rank. The results have the
same bits for any number of ranks and threads.`,
		Example: `  cohort run -n 4 ./sddp/cmd/sddp train sddp/cases/brazil4 --out results
  cohort run -n 2 --bind none ./sddp/cmd/sddp train sddp/cases/brazil4 --threads 8
  sddp simulate sddp/cases/brazil4 --policy results
  sddp info sddp/cases/brazil4`,
	}
	root.AddCommand(trainCommand(&options{}, stdout, stderr), simulateCommand(stdout, stderr), infoCommand(stdout))
	return root
}

// noFolder is the value of --resume without one; help shows it as --resume[=DIR].
const noFolder = "DIR"

// noFile is the value of --json without one; help shows it as --json[=FILE].
const noFile = "FILE"

// The largest values of flags.
const (
	mostIterations = 100_000 // passes, openings and threads too
	mostScenarios  = 10_000_000
)

// trainCommand returns the command train, which reads its flags and arguments into o.
func trainCommand(o *options, stdout, stderr *os.File) *cobra.Command {
	*o = options{iterations: 50, passes: 8, openings: 10, blocks: 1, seed: 1, alpha: 0.1, gapEvery: 10, gapMost: 1000, scenarios: 200, every: 10}
	resumeAt := -1 // how many arguments stand before --resume
	cmd := &cobra.Command{
		Use:   "train CASE [flags]",
		Short: "Compute a policy for a case and simulate it",
		Long: `Compute a policy for a case and simulate it. A policy says what stored water is
worth: for every stage, a lower bound of the cost that remains after it, as a
function of the energy stored.

Progress goes to standard error, a line for each iteration. A summary goes to
standard output. The exit status is 0 for success, 1 for failure (also if only a
checkpoint could not be written), 2 for a wrong command line, 130 after SIGINT
and 143 after SIGTERM.`,
		Example: `  sddp train sddp/cases/brazil4 --out results
  sddp train sddp/cases/brazil4 --iterations 200 --stall 20
  sddp train sddp/cases/brazil4 --checkpoint run1 --resume`,
		Args: func(_ *cobra.Command, args []string) error { return o.arguments(args, resumeAt) },
		RunE: func(*cobra.Command, []string) error { return cli.Exit(start(train, o, stdout, stderr), nil) },
	}
	f := cmd.Flags()
	cli.Number(f, &o.iterations, "iterations", "", 1, mostIterations, "stop after `N` iterations")
	cli.Number(f, &o.passes, "passes", "", 1, mostIterations, "run `N` forward passes in an iteration, shared among the ranks")
	cli.Number(f, &o.openings, "openings", "", 1, mostIterations, "draw `N` equally likely inflows for a stage")
	cli.Number(f, &o.blocks, "opening-blocks", "", 1, mostIterations, "solve the openings of a pass in `N` blocks, so that more ranks and threads than passes help")
	cli.Func(f, "seed", "", "N", "1", "draw all random numbers from this seed", func(s string) (err error) {
		if o.seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			return errors.New("want a whole number from 0 to " + strconv.FormatUint(math.MaxUint64, 10))
		}
		return nil
	})
	samplingFlag(f, o, "give the forward passes their inflows from `SAMPLE`")
	f.BoolVar(&o.selection, "cut-selection", false, "leave out cuts that are highest at no trial point, also from the policy")
	f.BoolVar(&o.multiCut, "multi-cut", false, "keep a cut for each opening instead of their mean: fewer iterations, each of which takes longer")
	f.StringVar(&o.warm, "warm", "", "begin with the policy in `DIR`, of this case or one with the same stages and reservoirs")
	cli.Func(f, "cvar-lambda", "", "X", "0", "minimize 1-X times the expected cost plus X times its CVaR, nested over the stages", func(s string) (err error) {
		if o.lambda, err = strconv.ParseFloat(s, 64); err != nil || !(o.lambda >= 0 && o.lambda <= 1) {
			return errors.New("want a number from 0 to 1")
		}
		return nil
	})
	cli.Func(f, "cvar-alpha", "", "X", "0.1", "CVaR is the mean of the costliest openings that have this probability together", func(s string) (err error) {
		if o.alpha, err = strconv.ParseFloat(s, 64); err != nil || !(o.alpha > 0 && o.alpha <= 1) {
			return errors.New("want a number above 0 and up to 1, such as 0.1")
		}
		return nil
	})
	cli.Func(f, "gap", "", "X", "", "stop when a test shows that the policy costs at most X more than the lower bound, such as 0.01", func(s string) (err error) {
		if o.gap, err = strconv.ParseFloat(s, 64); err != nil || !(o.gap >= 0 && o.gap < 1) {
			return errors.New("want a number from 0 to below 1, such as 0.01")
		}
		return nil
	})
	cli.Number(f, &o.gapEvery, "gap-every", "", 1, mostIterations, "test the gap every `N` iterations")
	cli.Number(f, &o.gapMost, "gap-scenarios", "", sddp.MinGapScenarios, mostScenarios, "test the gap with up to `N` scenarios")
	cli.Number(f, &o.stall, "stall", "", 0, mostIterations, "stop when the lower bound has hardly risen in `N` iterations")
	cli.Func(f, "stall-tolerance", "", "X", "1e-6", "what counts as hardly for --stall, relative to the lower bound", func(s string) (err error) {
		if o.stallLeast, err = strconv.ParseFloat(s, 64); err != nil || !(o.stallLeast > 0 && o.stallLeast < 1) {
			return errors.New("want a number between 0 and 1, such as 1e-6")
		}
		return nil
	})
	cli.Func(f, "time-limit", "", "T", "", "stop after the iteration during which this time passes, such as 90s or 2h30m", func(s string) (err error) {
		if o.timeLimit, err = time.ParseDuration(s); err != nil || o.timeLimit <= 0 {
			return errors.New("want a time, such as 90s or 2h30m")
		}
		return nil
	})

	resultFlags(cmd, o)
	f.StringVar(&o.checkpoint, "checkpoint", "", "save the training to the folder `DIR` at intervals, and whenever it ends")
	cli.Number(f, &o.every, "checkpoint-every", "", 1, mostIterations, "save every `N` iterations")
	cli.Func(f, "resume", "", "", "", "continue from the newest checkpoint in DIR; without DIR, continue from the folder of "+
		"--checkpoint, or begin if it has none", func(s string) error {
		if o.resume, resumeAt = true, f.NArg(); s != noFolder {
			o.resumeDir, resumeAt = s, -1
		}
		return nil
	})
	f.Lookup("resume").NoOptDefVal = noFolder
	computeFlags(cmd, o)
	cli.Section(cmd, "Training", "iterations", "passes", "openings", "opening-blocks", "sampling", "seed", "warm",
		"cut-selection", "multi-cut", "cvar-lambda", "cvar-alpha", "gap", "gap-every", "gap-scenarios", "stall", "stall-tolerance", "time-limit")
	cli.Section(cmd, "Interruptions", "checkpoint", "checkpoint-every", "resume", "resilient")
	return cmd
}

func simulateCommand(stdout, stderr *os.File) *cobra.Command {
	o := &options{scenarios: 1000}
	cmd := &cobra.Command{
		Use:   "simulate CASE --policy DIR [flags]",
		Short: "Simulate a policy over many scenarios",
		Long: `Simulate a policy over many scenarios, and report what it costs and does. The
policy must have been trained for the same case, or with --changed for one that
has as many stages and the same reservoirs.`,
		Example: "  sddp simulate sddp/cases/brazil4 --policy results --sampling out-of-sample",
		Args: func(_ *cobra.Command, args []string) error {
			if err := o.arguments(args, -1); err != nil || o.policy != "" {
				return err
			}
			return cli.Usagef("--policy is missing: want the folder that sddp train --out wrote")
		},
		RunE: func(*cobra.Command, []string) error { return cli.Exit(start(simulate, o, stdout, stderr), nil) },
	}
	f := cmd.Flags()
	f.StringVar(&o.policy, "policy", "", "the folder `DIR` that sddp train --out wrote, or its policy.json")
	f.BoolVar(&o.changed, "changed", false, "let the policy be that of another case with as many stages and the same reservoirs")
	f.StringVar(&o.inflows, "inflows", "", "simulate the inflows in the CSV `FILE`, with the columns scenario, stage and each reservoir")
	samplingFlag(f, o, "give the scenarios their inflows from `SAMPLE`")
	resultFlags(cmd, o)
	computeFlags(cmd, o)
	return cmd
}

// samplingFlag adds the flag --sampling.
func samplingFlag(f *pflag.FlagSet, o *options, usage string) {
	cli.Func(f, "sampling", "", "SAMPLE", "in-sample", usage+": in-sample (the openings), out-of-sample (drawn anew) or historical (years of the record)", func(s string) error {
		o.sampling = sddp.Sampling(s)
		if !slices.Contains(sddp.Samplings, o.sampling) {
			return errors.New("want in-sample, out-of-sample or historical")
		}
		return nil
	})
}

func infoCommand(stdout *os.File) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:     "info CASE",
		Short:   "Check a case and describe it",
		Example: "  sddp info sddp/cases/brazil4 --json",
		Args:    func(_ *cobra.Command, args []string) error { return o.arguments(args, -1) },
		RunE:    func(*cobra.Command, []string) error { return info(o, stdout) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object")
	return cmd
}

// resultFlags adds the flags that say what to do with a policy.
func resultFlags(cmd *cobra.Command, o *options) {
	f := cmd.Flags()
	cli.Number(f, &o.scenarios, "scenarios", "", 2, mostScenarios, "simulate the policy over `N` scenarios")
	f.StringVar(&o.out, "out", "", "write tables to the folder `DIR`, and the policy after training")
	f.StringVar(&o.paths, "paths", "", "write a CSV table with a line for each scenario and stage to `FILE`")
	f.BoolVar(&o.buses, "buses", false, "print a table for each bus too")
	f.StringVar(&o.report, "report", "", "write one HTML page with charts and tables to `FILE`")
	cli.Func(f, "json", "", "", "", "print the result as one JSON object on the last line (cohort run does not mark it), or write it to FILE", func(s string) error {
		if o.json = s == noFile; !o.json {
			o.jsonFile = s
		}
		return nil
	})
	f.Lookup("json").NoOptDefVal = noFile
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print neither progress nor a summary, only warnings, errors and what --json prints")
	cli.Section(cmd, "Results", "scenarios", "out", "paths", "report", "buses", "json", "quiet")
}

// computeFlags adds the flags that say how ranks compute.
func computeFlags(cmd *cobra.Command, o *options) {
	f := cmd.Flags()
	o.solver = lp.Auto
	cli.Number(f, &o.threads, "threads", "", 1, mostIterations,
		"run `N` threads in each rank (default: COHORT_THREADS, else SLURM_CPUS_PER_TASK, else 1)")
	cli.Choice(cmd, &o.pin, "pin", "pin threads to cores, numa (domains) or none (default: COHORT_PIN, else none)", "none", "cores", "numa")
	cli.Choice(cmd, &o.solver, "solver", "solve linear programs with embedded, clp (needs libClp.so.1), or auto: clp if installed, for 100 or more buses and reservoirs",
		lp.Auto, lp.Embedded, lp.CLP)
	f.BoolVar(&o.resilient, "resilient", false, "continue with the other ranks when ranks die and cohort run --restarts does not replace them; not on mpi")
	cli.Section(cmd, "Computing", "threads", "pin", "solver", "resilient")
}

// arguments reads the arguments: the folder of the case, and where --resume was given without =, after
// resumeAt arguments, the folder that may follow it.
func (o *options) arguments(args []string, resumeAt int) error {
	if len(args) == 2 && resumeAt >= 0 && resumeAt < 2 {
		o.resumeDir = args[resumeAt]
		args = slices.Delete(slices.Clone(args), resumeAt, resumeAt+1)
	}
	if err := cli.OneArg("CASE: the folder of a case")(nil, args); err != nil {
		return err
	}
	if o.gap > 0 && o.lambda > 0 {
		return cli.Usagef("--gap: with --cvar-lambda the gap is unknown, since the costs of scenarios do not estimate a nested CVaR; stop by --stall, --time-limit or --iterations")
	}
	if o.multiCut && (o.lambda > 0 || o.selection) {
		return cli.Usagef("--multi-cut: it keeps a cut for each opening, while --cvar-lambda and --cut-selection need cuts of the mean; leave out one or the other")
	}
	if o.resume && o.checkpointDir() == "" {
		return cli.Usagef("--resume needs the folder of the checkpoints: --resume DIR or --checkpoint DIR")
	}
	o.dir = args[0]
	return nil
}

// risk returns the risk that a training minimizes.
func (o *options) risk() sddp.Risk {
	if o.lambda == 0 {
		return sddp.Risk{}
	}
	return sddp.Risk{Lambda: o.lambda, Alpha: o.alpha}
}

// checkpointDir returns the folder that checkpoints are written to, or "".
func (o *options) checkpointDir() string {
	if o.checkpoint == "" {
		return o.resumeDir
	}
	return o.checkpoint
}

// checkpoints sets where checkpoints are written and which one to resume from. --resume without a
// folder may find none: a job script can then use one command for the first run and the later ones.
func (o *options) checkpoints(opt *sddp.Options) {
	opt.Checkpoint, opt.CheckpointEvery, opt.Resume = o.checkpointDir(), o.every, o.resumeDir
	if o.resume && o.resumeDir == "" {
		opt.Resume, opt.ResumeOrBegin = o.checkpoint, true
	}
}
