package sddp

import (
	"fmt"
	"os"
	"strconv"

	"github.com/cohort-hpc/cohort"
)

// Paths are inflows that the user gives for a simulation, by scenario, stage and reservoir, in the unit of the case.
type Paths [][][]float64

// LoadPaths reads a CSV file with the columns scenario and stage, which count from 1, and one for each reservoir.
// It has all stages of every scenario, in order.
//
// Collective: all ranks of world call it. Only rank 0 uses file.
//
// Errors: up to ten [*FieldError], each with the line and what is wanted there.
func LoadPaths(world *cohort.Comm, file string, c *Case) (Paths, error) {
	packed, err := newTeam(world).fromFirst("read inflows", func() ([]byte, error) {
		data, err := os.ReadFile(file)
		if err == nil {
			_, err = parsePaths(file, data, c)
		} else {
			err = fmt.Errorf("inflows %s: %w", file, plainError(err))
		}
		return packTexts([][]byte{[]byte(file), data}), err
	})
	if err != nil {
		return nil, err
	}
	texts := unpackTexts(packed)
	return parsePaths(string(texts[0]), texts[1], c)
}

// parsePaths reads the text of the file of LoadPaths.
func parsePaths(file string, data []byte, c *Case) (paths Paths, err error) {
	p := &problems{}
	for i, row := range readCSV(p, file, data, []string{"scenario", "stage"}, c.reservoirNames(), -maxFigure, maxFigure) {
		scenario, stage := strconv.Itoa(1+i/c.Stages), strconv.Itoa(1+i%c.Stages)
		if row.keys[0] != scenario || row.keys[1] != stage {
			p.add(file, fmt.Sprintf("line %d", row.line), "got stage %q of scenario %q, want %s of %s: the %d stages of each scenario, in order", row.keys[1], row.keys[0], stage, scenario, c.Stages)
			return nil, p.err()
		}
		if i%c.Stages == 0 {
			paths = append(paths, nil)
		}
		paths[len(paths)-1] = append(paths[len(paths)-1], row.numbers)
	}
	if n := len(paths); p.err() == nil && (n < 2 || n > maxScenarios || len(paths[n-1]) < c.Stages) {
		p.add(file, "", "got %d scenarios, the last of them perhaps with too few stages; want 2 to %d scenarios of %d stages", n, maxScenarios, c.Stages)
	}
	return paths, p.err()
}

// noiseOf sets dst, which holds the inflows of a stage, to the noise that gives them after a state: with a PAR the
// residuals.
func (c *Case) noiseOf(dst, before []float64, stage int) {
	par := c.par()
	if par == nil {
		return
	}
	known, state := make([]float64, len(dst)), before[len(dst):]
	par.advance(known, state, make([]float64, len(state)), c.Season(stage))
	for r := range dst {
		dst[r] -= known[r]
	}
}
