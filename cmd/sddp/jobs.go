package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/sddp"
	"github.com/cohort-hpc/cohort/sddp/report"
)

// train computes a policy, simulates it, and reports.
func train(j *job) error {
	began := time.Now()
	c, out, err := j.open()
	if err != nil {
		return err
	}
	j.progress.begin(c, j.o)
	opt := sddp.Options{
		Iterations: j.o.iterations, Passes: j.o.passes, Openings: j.o.openings, Seed: j.o.seed,
		Risk: j.o.risk(), Gap: j.o.gap, GapEvery: j.o.gapEvery, GapScenarios: j.o.gapMost,
		Stall: j.o.stall, StallTolerance: j.o.stallLeast, TimeLimit: j.o.timeLimit, Solver: j.o.solver, Env: j.env, Recovery: j.recovery, Progress: j.progress.iteration, Warn: j.progress.warn,
	}
	j.o.checkpoints(&opt)
	if opt.Checkpoint != "" {
		opt.Stop = j.signals.stopTraining()
	}
	trained, err := sddp.Train(j.ctx, j.env.World, c, opt)
	if err != nil {
		return err
	}
	j.signals.trainingEnded()
	j.saved = opt.Checkpoint != "" && trained.Unsaved == nil
	j.progress.end()
	sim, err := sddp.Simulate(j.ctx, j.env.World, c, trained.Policy, sddp.SimulateOptions{
		Scenarios: j.o.scenarios, Solver: j.o.solver, Env: j.env, Recovery: j.recovery,
	})
	if err != nil {
		return err
	}
	err = j.report(out, &report.Run{Case: c, Training: trained, Policy: trained.Policy, Simulation: sim}, began)
	if err != nil {
		return err
	}
	return trained.Unsaved // everything else succeeded
}

// simulate reads a policy, simulates it, and reports.
func simulate(j *job) error {
	began := time.Now()
	c, out, err := j.open()
	if err != nil {
		return err
	}
	var policy *sddp.Policy
	err = j.do(func(world *cohort.Comm) (err error) {
		policy, err = sddp.LoadPolicy(world, j.o.policy, c)
		return err
	})
	if err != nil {
		return err
	}
	sim, err := sddp.Simulate(j.ctx, j.env.World, c, policy, sddp.SimulateOptions{
		Scenarios: j.o.scenarios, Outside: j.o.outside, Solver: j.o.solver, Env: j.env, Recovery: j.recovery,
	})
	if err != nil {
		return err
	}
	return j.report(out, &report.Run{Case: c, Policy: policy, Simulation: sim}, began)
}

// info describes a case.
func info(o *options, stdout io.Writer) error {
	c, err := sddp.ReadCase(o.dir)
	if err != nil {
		return err
	}
	text := c.Describe()
	if o.json {
		line, err := json.Marshal(c.Facts())
		if err != nil {
			return err
		}
		text = string(line) + "\n"
	}
	_, err = io.WriteString(stdout, text)
	return err
}

// do runs a collective operation, and runs it again when ranks die in it.
func (j *job) do(f func(world *cohort.Comm) error) error { return j.recovery.Do(j.env.World, f) }

// open reads the case and opens the output folder, if any, before the work begins.
func (j *job) open() (c *sddp.Case, out *sddp.Output, err error) {
	warned := false
	err = j.do(func(world *cohort.Comm) (err error) {
		if c, err = sddp.LoadCase(world, j.o.dir); err != nil {
			return err
		}
		if !warned {
			warned = true
			for _, text := range c.Warnings() {
				j.progress.warn(errors.New(text))
			}
		}
		if j.o.out == "" {
			return nil
		}
		out, err = sddp.OpenOutput(world, j.o.out)
		return err
	})
	return c, out, err
}

// report writes the files and prints the summary.
func (j *job) report(out *sddp.Output, r *report.Run, began time.Time) error {
	r.Ranks, r.Threads, r.Backend, r.Buses = j.world().Size(), j.env.Summary.Threads, j.env.World.Backend(), j.o.buses
	r.Seconds = time.Since(began).Seconds()
	if out != nil {
		files, err := r.Files()
		if err != nil {
			return err
		}
		if err := j.do(func(world *cohort.Comm) error { return out.Write(j.ctx, world, files) }); err != nil {
			return err
		}
		j.written = true
	}
	// If rank 0 dies after it has printed and before the others learn that, the next rank prints again.
	return j.do(func(world *cohort.Comm) error {
		if r.Ranks = world.Size(); world.Rank() == 0 {
			if err := j.print(out, r); err != nil {
				return err
			}
		}
		if j.recovery == nil {
			return nil
		}
		return world.Barrier()
	})
}

// print prints the summary, on rank 0.
func (j *job) print(out *sddp.Output, r *report.Run) error {
	text := "\n" + r.Summary()
	switch {
	case out != nil:
		text += fmt.Sprintf("\nResults written to %s.\n", j.o.out)
	case r.Training != nil:
		text += "\nNo files were written. --out DIR writes the policy, tables and charts; --buses prints a table for each bus.\n"
	default:
		text += "\nNo files were written. --out DIR writes tables and a chart; --buses prints a table for each bus.\n"
	}
	if lost := j.recovery.Losses(); len(lost) > 0 {
		text += "\n"
		for _, l := range lost {
			text += fmt.Sprintf("During the run: %v.\n", l)
		}
	}
	if j.o.json {
		line, err := json.Marshal(r.Result())
		if err != nil {
			return err
		}
		text += string(line) + "\n"
	}
	_, err := fmt.Fprint(j.out, text)
	return err
}
