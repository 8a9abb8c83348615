package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/sddp"
	"github.com/cohort-hpc/cohort/sddp/report"
)

// gapPaths is the number of scenarios on which the gap of results that are kept is estimated.
const gapPaths = 100

// train computes a policy, simulates it, and reports.
func train(j *job) error {
	began := time.Now()
	c, err := j.open()
	if err != nil {
		return err
	}
	j.progress.begin(c, j.o)
	opt := sddp.Options{
		Iterations: j.o.iterations, Passes: j.o.passes, Openings: j.o.openings, Seed: j.o.seed,
		Risk: j.o.risk(), OpeningBlocks: j.o.blocks, Sampling: j.o.sampling, CutSelection: j.o.selection, MultiCut: j.o.multiCut,
		Gap: j.o.gap, GapEvery: j.o.gapEvery, GapScenarios: j.o.gapMost, Stall: j.o.stall, StallTolerance: j.o.stallLeast,
		TimeLimit: j.o.timeLimit, Solver: j.o.solver, Env: j.env, Recovery: j.recovery, Progress: j.progress.iteration, Warn: j.progress.warn,
	}
	if (j.o.out != "" || j.o.report != "") && opt.Risk.Neutral() && j.o.sampling != sddp.OutOfSample && j.o.sampling != sddp.Historical {
		opt.GapEstimate = gapPaths
	}
	if j.o.warm != "" {
		if opt.Warm, err = sddp.LoadWarmStart(j.world, j.o.warm, c); err != nil {
			return err
		}
	}
	j.o.checkpoints(&opt)
	if opt.Checkpoint != "" {
		opt.Stop = j.signals.stopTraining()
	}
	trained, err := sddp.Train(j.ctx, j.world, c, opt)
	if err != nil {
		return err
	}
	j.signals.trainingEnded()
	j.saved = opt.Checkpoint != "" && trained.Unsaved == nil
	j.progress.end()
	r := &report.Run{Case: c, Training: trained, Policy: trained.Policy}
	if err := j.simulate(r, "", nil); err != nil {
		return err
	}
	if err := j.report(r, began); err != nil {
		return err
	}
	return trained.Unsaved // everything else succeeded
}

// simulate reads a policy, simulates it, and reports.
func simulate(j *job) error {
	began := time.Now()
	c, err := j.open()
	if err != nil {
		return err
	}
	load := sddp.LoadPolicy
	if j.o.changed {
		load = sddp.LoadWarmStart
	}
	policy, err := load(j.world, j.o.policy, c)
	if err != nil {
		return err
	}
	var paths sddp.Paths
	if j.o.inflows != "" {
		if paths, err = sddp.LoadPaths(j.world, j.o.inflows, c); err != nil {
			return err
		}
	}
	r := &report.Run{Case: c, Policy: policy, Other: policy.CaseSHA256 != c.SHA256()}
	if err := j.simulate(r, j.o.sampling, paths); err != nil {
		return err
	}
	return j.report(r, began)
}

// simulate runs the policy of r over scenarios.
func (j *job) simulate(r *report.Run, sampling sddp.Sampling, paths sddp.Paths) (err error) {
	opt := sddp.SimulateOptions{Scenarios: j.o.scenarios, Sampling: sampling, Paths: paths, Solver: j.o.solver, Env: j.env}
	if j.o.paths != "" && j.first() {
		opt.Seen = r.Path
	}
	r.Simulation, err = sddp.Simulate(j.ctx, j.world, r.Case, r.Policy, opt)
	return err
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

// output is a folder, and what makes the files to write there.
type output struct {
	*sddp.Output
	files func(r *report.Run) ([]sddp.File, error)
}

// open reads the case and opens the folders of the files, if any, before the work begins.
func (j *job) open() (c *sddp.Case, err error) {
	if c, err = sddp.LoadCase(j.world, j.o.dir); err != nil {
		return nil, err
	}
	if !j.warned {
		j.warned = true
		for _, text := range c.Warnings() {
			j.progress.warn(errors.New(text))
		}
	}
	return c, j.openOutputs(j.world)
}

// openOutputs opens the folders of the files that were asked for.
func (j *job) openOutputs(world *cohort.Comm) error {
	j.outputs = nil
	add := func(dir string, files func(*report.Run) ([]sddp.File, error)) error {
		out, err := sddp.OpenOutput(world, dir)
		j.outputs = append(j.outputs, output{out, files})
		return err
	}
	one := func(path string, text func(*report.Run) ([]byte, error)) error {
		if path == "" {
			return nil
		}
		return add(filepath.Dir(path), func(r *report.Run) ([]sddp.File, error) {
			data, err := text(r)
			return []sddp.File{{Name: filepath.Base(path), Data: data}}, err
		})
	}
	if j.o.out != "" {
		if err := add(j.o.out, (*report.Run).Files); err != nil {
			return err
		}
	}
	if err := one(j.o.report, (*report.Run).Page); err != nil {
		return err
	}
	if err := one(j.o.paths, (*report.Run).Paths); err != nil {
		return err
	}
	return one(j.o.jsonFile, jsonLine)
}

// jsonLine returns the result as a line of JSON.
func jsonLine(r *report.Run) ([]byte, error) {
	line, err := json.Marshal(r.Result())
	return append(line, '\n'), err
}

// report writes the files and prints the summary.
func (j *job) report(r *report.Run, began time.Time) error {
	r.Ranks, r.Threads, r.Backend, r.Buses = j.world.Size(), j.env.Summary.Threads, j.world.Backend(), j.o.buses
	r.Seconds = time.Since(began).Seconds()
	for _, out := range j.outputs {
		files, err := out.files(r)
		if err != nil {
			return err
		}
		if err := out.Write(j.ctx, j.world, files); err != nil {
			return err
		}
		j.written = true
	}
	if j.first() { // if it dies before the others learn that, the next one prints again
		return j.print(r)
	}
	return nil
}

// print prints the summary and the line of JSON, on rank 0.
func (j *job) print(r *report.Run) error {
	text := ""
	if !j.o.quiet {
		text = "\n" + r.Summary() + "\n" + j.places(r)
		for i, l := range j.recovery.Losses() {
			if i == 0 {
				text += "\n"
			}
			text += fmt.Sprintf("During the run: %v.\n", l)
		}
	}
	if j.o.json {
		line, err := jsonLine(r)
		if err != nil {
			return err
		}
		text += string(line)
	}
	_, err := fmt.Fprint(j.out, text)
	return err
}

// places says where the results are.
func (j *job) places(r *report.Run) string {
	var to []string
	for _, path := range []string{j.o.out, j.o.paths, j.o.report, j.o.jsonFile} {
		if path != "" {
			to = append(to, path)
		}
	}
	switch {
	case len(to) > 0:
		return fmt.Sprintf("Results written to %s.\n", strings.Join(to, ", "))
	case r.Training != nil:
		return "No files were written. --out DIR writes the policy and tables, --report FILE one page with charts; --buses prints a table for each bus.\n"
	}
	return "No files were written. --out DIR writes tables, --report FILE one page with charts; --buses prints a table for each bus.\n"
}
