package main

import (
	"fmt"
	"io"
)

const usage = `sddp plans the operation of a hydrothermal power system by stochastic dual
dynamic programming.

Usage:

	sddp train CASE [flags]                    make a policy for a case
	sddp simulate CASE --policy DIR [flags]    run a policy over many scenarios
	sddp info CASE [--json]                    tell what a case holds
	sddp help [COMMAND]                        tell more about a command

CASE is a folder with case.json, buses.json, thermals.json, reservoirs.json and
lines.json; docs/sddp.md describes them. Flags may stand before or after it.

train and simulate share their work out over the ranks of the job they are
started in, and over the threads of each, and give the same numbers for any
number of them:

	cohort run -n 4 ./cmd/sddp train cases/brazil4
	cohort run -n 2 --bind none ./cmd/sddp train cases/brazil4 --threads 8
`

const trainHelp = `Usage: sddp train CASE [flags]

Train makes a policy: lower bounds of what is left to pay after every stage, as a
function of the energy stored. A line on standard error tells how far it is, and
a summary on standard output what the policy does.

Training:

	--iterations N   stop after N iterations (default 50)
	--passes M       forward passes in each, shared out over the ranks (default 8)
	--openings K     equally likely inflows per stage (default 10)
	--seed S         of all random numbers (default 1)
	--gap G          stop earlier, when the upper end of the 95 % interval of the
	                 cost of the forward passes is within G of the lower bound, as
	                 0.01; with few passes the interval is wide (default 0: do not)
	--stall N        stop earlier, when the lower bound has grown by less than one
	                 millionth in N iterations (default 0: do not)

	--solver S       what solves the linear programs: embedded, clp, which needs the
	                 library libClp.so.1, or auto: clp for stages of 100 rows or more
	                 if it is there, else embedded (default auto)

Results:

	--scenarios N    simulate the policy over N scenarios at the end (default 200)
	--out DIR        write convergence.csv, convergence.svg, storage.svg,
	                 summary.json and policy.json to DIR, each whole or not at all
	--json           print, as the last line, one JSON object: lower_bound,
	                 upper_mean, upper_ci95, iterations, cuts, cuts_sha256, ranks,
	                 seconds

Interruptions:

	--checkpoint DIR      write to DIR what the training has come to: now and then,
	                      at the end, and when a signal or an error ends it early
	--checkpoint-every N  after every N iterations (default 10)
	--resume DIR          go on from the newest checkpoint in DIR, to the same numbers
	                      as if nothing had happened, and write further ones there,
	                      or to the DIR of --checkpoint; case, seed, passes, openings
	                      and solver have to be the same
	--resume              the same, from the DIR of --checkpoint, or begin if there is
	                      no checkpoint in it yet: for a job script that is run again
	--resilient           go on when ranks of the job are lost, at the cost of the
	                      iteration they are in (with mpi only where the library
	                      goes on after losses: ULFM; else an error that says so)

Threads:

	--threads N      threads that each rank computes with (default: COHORT_THREADS,
	                 else SLURM_CPUS_PER_TASK, else 1); more than a rank's share of
	                 the passes have nothing to do
	--pin WHAT       pin them, to cores, to numa domains, or to none (default:
	                 COHORT_PIN, else none)

The first line on standard error says what runs where. The status is 0 for success,
1 for failure, also if only a checkpoint could not be written, 2 for a wrong command
line, 130 when it was interrupted, and 143 when SIGTERM stopped it.
`

const simulateHelp = `Usage: sddp simulate CASE --policy DIR [flags]

Simulate runs a policy over many scenarios and tells what it costs and does. The
policy must have been trained for the same case.

	--policy DIR       what sddp train --out wrote: the folder, or its policy.json
	--scenarios N      number of scenarios (default 1000)
	--out-of-sample    draw inflows anew from the distributions of the case, instead
	                   of taking the openings that the policy was trained for
	--solver S         what solves the linear programs, as for sddp train
	--threads N        threads that each rank computes with, and
	--pin WHAT         what they are pinned to, as for sddp train
	--resilient        begin again when ranks of the job are lost (with mpi as for
	                   sddp train)
	--out DIR          write storage.svg and summary.json to DIR
	--json             print, as the last line, one JSON object, as sddp train does
`

const infoHelp = `Usage: sddp info CASE [--json]

Info reads a case, checks it, and tells what it holds.

	--json    print one JSON object
`

// help prints what a command takes.
func help(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stdout, usage)
		return 0
	}
	cmd, ok := commands[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "sddp help: unknown command %q, want train, simulate or info\n", args[0])
		return statusUsage
	}
	fmt.Fprint(stdout, cmd.help)
	return 0
}
