package sddp

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/sddp/internal/text"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// stage is the linear program of one stage. It is solved repeatedly with other storages at its start,
// other inflows, and more cuts.
//
//	minimize   hours*(fuel + deficit + spill + transport) + penalties + discount*mean(theta)
//	balance    generation + deficit + arriving - leaving = load        a row per block and bus
//	water      storage + fill*(outflow - outflow upstream)
//	             = storage before + fill*inflow                        a row per reservoir
//	limits     storage + missing >= least, outflow + missing >= least  where a reservoir has them
//	cuts       theta - beta'storage >= alpha                           as many as are needed
//
// with theta >= 0 and outflow = generation/productivity + spill. There is a theta for each of the stage's futures,
// and their mean has the weights of these. Costs are those of the whole stage, so that theta and the cuts are in
// money. fill and productivity are 1 where water is measured as energy. The generation in outflow is the mean
// over the load blocks.
//
// Cuts become rows only when they are violated: few of hundreds bind in one program. The rows are as
// much a part of the starting point as the basis, so restart drops all cuts.
//
// A stage is not safe for concurrent use.
type stage struct {
	t        int
	hours    float64
	discount float64 // of the cost after the stage
	fill     float64 // storage that one unit of flow fills
	lp       lp.Solver
	base     int      // rows that are not cuts
	start    lp.Basis // the canonical basis, see ADR 0004
	solves   int      // programs solved so far

	blocks         []loadBlock
	spill, storage []int // columns, by reservoir
	shortStorage   []int // columns, by reservoir: what a limit lacks; -1 for none
	shortOutflow   []int
	shortInflow    []int          // of the water that a negative inflow lacks
	priced         []pricedColumn // the columns that have a cost
	theta          []int          // by future
	weights        []float64      // of the futures
	water          []int          // rows, by reservoir

	first    int   // list of the first future in a pool
	terminal *Pool // the cuts of the last stage, in one list; nil for other stages

	season int
	par    *PAR      // nil if inflows are no state
	inflow []float64 // of this stage

	held  [][]bool    // by future and cut: whether it is a row
	rows  []cutRow    // the cuts that are rows, to clear held
	worst []int       // by future: the cut to become a row, or -1
	tails [][]float64 // alpha and the slopes by lagged inflows of the cuts that are rows, with a PAR
	v     []float64   // state at the end, of the last solution
	cols  []int       // of a cut's row
	coefs []float64
}

// loadBlock has the columns and rows of a load block, or of the whole stage if the case has no blocks.
type loadBlock struct {
	share           float64 // of the stage's hours
	hours           float64
	thermal, hydro  []int
	deficit         [][]int // by bus and tier; none where there is no load
	direct, reverse []int   // by line
	balance         []int   // rows, by bus
}

// cutRow names a cut that is a row.
type cutRow struct{ future, cut int32 }

// newStage creates the program of stage t in a new solver and finds its canonical basis: the optimal basis
// without cuts, for the initial storage and the mean inflow.
func newStage(c *Case, t int, f futures, solver lp.Solver) (*stage, error) {
	s := &stage{
		first: f.first(t), weights: f.of(t), held: make([][]bool, len(f.of(t))),
		t: t, hours: c.Hours(t), discount: c.discount(t), fill: c.perFlow(t),
		season: c.Season(t), par: c.par(), inflow: make([]float64, len(c.Reservoirs)),
		lp: solver, v: make([]float64, c.states()),
	}
	none := slices.Repeat([]int{-1}, len(c.Reservoirs))
	s.shortStorage, s.shortOutflow, s.shortInflow = slices.Clone(none), slices.Clone(none), none
	if t == c.Stages-1 && c.Terminal != nil {
		s.terminal, s.first = newPool(2, c.states()), 0
		s.terminal.add(0, slices.Concat(c.Terminal...))
	}
	s.addColumns(c)
	for k := range s.blocks {
		for b := range c.Buses {
			s.addBalance(c, k, b)
		}
	}
	for r := range c.Reservoirs {
		s.addWater(c, r)
	}
	for r := range c.Reservoirs {
		s.addLimits(c, r)
	}
	s.base = s.lp.Rows()
	s.cols = append([]int{-1}, s.storage...)
	s.coefs = make([]float64, len(s.cols))
	s.coefs[0] = 1

	s.set(c.initialState(), c.expected(t))
	s.lp.ResetBasis()
	if err := s.optimize(); err != nil {
		return s, err
	}
	s.start = s.lp.Basis(s.start)
	return s, nil
}

// newStages creates the programs of all stages.
func newStages(c *Case, f futures, newSolver func() lp.Solver) ([]*stage, error) {
	stages := make([]*stage, c.Stages)
	for t := range stages {
		var err error
		if stages[t], err = newStage(c, t, f, newSolver()); err != nil {
			return nil, err
		}
	}
	return stages, nil
}

// checkStages returns an error if a stage has no solution. Water can always be kept or spilled, so this
// does not depend on storage and inflow: only must-run output can be too large. dir appears in errors only.
func (c *Case) checkStages(dir string) error {
	newSolver, _, err := lp.Open(lp.Auto, c.rows())
	if err != nil {
		return err
	}
	for t := range min(c.Stages, len(c.Periods)) {
		s, err := newStage(c, t, expectedFutures(c.Stages), newSolver())
		var unsolved *unsolvedError
		if errors.As(err, &unsolved) && unsolved.status == lp.Infeasible {
			return s.tooMuch(c, dir)
		}
		if err != nil {
			return fmt.Errorf("case %s: %w", dir, err)
		}
	}
	return nil
}

// tooMuch returns the error of a stage that is infeasible. The multipliers that prove it belong to the buses
// whose must-run output exceeds their load and what lines take away, in the block with the largest one.
func (s *stage) tooMuch(c *Case, dir string) error {
	most, block := 0.0, 0
	for k, w := range s.blocks {
		for _, row := range w.balance {
			if y := math.Abs(s.lp.Farkas(row)); y > most {
				most, block = y, k
			}
		}
	}
	var names []string
	period := c.Period(s.t)
	in := make([]bool, len(c.Buses))
	load, away, run, plants, largest := 0.0, 0.0, 0.0, 0, -1
	for b, row := range s.blocks[block].balance {
		if in[b] = math.Abs(s.lp.Farkas(row)) > most/2; in[b] {
			names = append(names, strconv.Quote(c.Buses[b].Name))
			load += c.blockLoad(s.t, block, b)
		}
	}
	for _, l := range c.Lines {
		switch {
		case in[l.From] && !in[l.To]:
			away += l.DirectMW.At(period)
		case in[l.To] && !in[l.From]:
			away += l.ReverseMW.At(period)
		}
	}
	for i, g := range c.Thermals {
		must := g.MinMW.At(period)
		if !in[g.Bus] || must == 0 {
			continue
		}
		run += must
		plants++
		if largest < 0 || must > c.Thermals[largest].MinMW.At(period) {
			largest = i
		}
	}
	if largest < 0 {
		return fmt.Errorf("case %s: %w", dir, &unsolvedError{s.t, lp.Infeasible})
	}
	who := fmt.Sprintf("plant %q", c.Thermals[largest].Name)
	if plants > 1 {
		who += fmt.Sprintf(" and %s", text.Plural(plants-1, "other plant"))
	}
	return &FieldError{
		File: filepath.Join(dir, caseFiles[2]), Field: fmt.Sprintf("thermals[%d].min_mw", largest),
		Text: fmt.Sprintf("in stage %d (%s) %s must run with %g MW at bus %s, where load takes %g MW and lines take %g MW away; lower min_mw, or raise load or lines",
			s.t+1, c.StageName(s.t), who, run, strings.Join(names, ", "), load, away),
	}
}

// restart drops all cuts and returns to the canonical basis, so that the next solution does not depend on
// earlier ones.
func (s *stage) restart() error {
	s.lp.Truncate(s.base)
	for _, row := range s.rows {
		s.held[row.future][row.cut] = false
	}
	s.rows, s.tails = s.rows[:0], s.tails[:0]
	return s.lp.SetBasis(s.start)
}

// set sets the state at the start of the stage and its inflow, or the residuals of its inflow with a PAR.
func (s *stage) set(before, noise []float64) {
	copy(s.inflow, noise)
	if s.par != nil {
		s.par.advance(s.inflow, before[len(s.water):], s.v[len(s.water):], s.season)
		for i, tail := range s.tails {
			s.lp.SetRHS(s.base+i, height(tail[0], tail[1:], s.v[len(s.water):]))
		}
	}
	for r, row := range s.water {
		s.lp.SetRHS(row, before[r]+s.fill*s.inflow[r])
	}
}

// cutTolerance is how far theta may stay below a cut, relative to theta; sameCut is the same relative to
// alpha. Both exceed the solver's tolerances, so a cut that was just added does not count as violated.
const cutTolerance = 1e-9

// solve finds the optimum over all cuts of the pool. It starts from the current basis and the cuts that
// are rows, and adds the most violated cut of each future until none is violated.
func (s *stage) solve(pool *Pool) error {
	if s.terminal != nil {
		pool = s.terminal
	}
	for k := range s.held {
		for n := pool.Len(s.first + k); len(s.held[k]) < n; {
			s.held[k] = append(s.held[k], false)
		}
	}
	for done := false; !done; {
		if err := s.optimize(); err != nil {
			return err
		}
		for r, col := range s.storage {
			s.v[r] = s.lp.Value(col)
		}
		s.worst = s.worst[:0]
		for k, col := range s.theta {
			theta := s.lp.Value(col)
			s.worst = append(s.worst, pool.mostViolated(s.first+k, s.v, theta, cutTolerance*math.Max(1, math.Abs(theta)), s.held[k]))
		}
		done = true
		for k, i := range s.worst {
			if i >= 0 {
				s.addCut(pool, k, i)
				done = false
			}
		}
	}
	return nil
}

// addCut makes cut i of a future a row.
func (s *stage) addCut(pool *Pool, future, i int) {
	alpha, beta := pool.Cut(s.first+future, i)
	s.cols[0] = s.theta[future]
	for r := range s.storage {
		s.coefs[1+r] = -beta[r]
	}
	if s.par != nil {
		tail := append([]float64{alpha}, beta[len(s.storage):]...)
		s.tails = append(s.tails, tail)
		alpha = height(alpha, tail[1:], s.v[len(s.storage):])
	}
	s.lp.AddRow(lp.GE, alpha, s.cols, s.coefs)
	s.held[future][i] = true
	s.rows = append(s.rows, cutRow{int32(future), int32(i)})
}

// optimize solves the program with its current rows. If the solver finds no optimum from the current
// basis, it tries once more from the slack basis, which also depends on the program alone.
func (s *stage) optimize() error {
	for again := false; ; again = true {
		s.solves++
		status, err := s.lp.Solve()
		switch {
		case err != nil:
			return fmt.Errorf("stage %d: %w", s.t+1, err)
		case status == lp.Optimal:
			return nil
		case again:
			return &unsolvedError{s.t, status}
		}
		s.lp.ResetBasis()
	}
}

// unsolvedError reports that the program of a stage has no optimum, or that none was found.
type unsolvedError struct {
	t      int
	status lp.Status
}

func (e *unsolvedError) Error() string {
	return fmt.Sprintf("stage %d: linear program not solved: %v", e.t+1, e.status)
}

// cost returns the cost of this stage in the last solution, without the cost of later stages. That of the
// last stage includes the cost after it, which the case gives.
func (s *stage) cost() float64 {
	if s.terminal != nil {
		return s.lp.Objective()
	}
	return s.lp.Objective() - s.discount*s.after()
}

// after returns the lower bound of the expected cost after the stage in the last solution.
func (s *stage) after() float64 {
	sum := 0.0
	for k, col := range s.theta {
		sum += s.weights[k] * s.lp.Value(col)
	}
	return sum
}

// mean returns the mean over the stage of what figure returns for each block.
func (s *stage) mean(figure func(w *loadBlock) float64) float64 {
	sum := 0.0
	for k := range s.blocks {
		sum += s.blocks[k].share * figure(&s.blocks[k])
	}
	return sum
}

// thermalMW returns the mean output of a thermal plant over the stage in the last solution.
func (s *stage) thermalMW(i int) float64 {
	return s.mean(func(w *loadBlock) float64 { return s.lp.Value(w.thermal[i]) })
}

// hydroMW returns the mean output of the plants of a reservoir.
func (s *stage) hydroMW(r int) float64 {
	return s.mean(func(w *loadBlock) float64 { return s.lp.Value(w.hydro[r]) })
}

// spilled returns the spill of a reservoir, in the unit of its inflow.
func (s *stage) spilled(r int) float64 { return s.lp.Value(s.spill[r]) }

// deficitMW returns the mean deficit of a bus.
func (s *stage) deficitMW(b int) float64 {
	return s.mean(func(w *loadBlock) float64 { return s.blockDeficit(w, b) })
}

// blockDeficit returns the deficit of a bus in a load block.
func (s *stage) blockDeficit(w *loadBlock, b int) float64 {
	sum := 0.0
	for _, col := range w.deficit[b] {
		sum += s.lp.Value(col)
	}
	return sum
}

// costs returns the parts of the cost of this stage in the last solution.
func (s *stage) costs() (parts CostParts) {
	for _, p := range s.priced {
		if p.part != costLater || s.terminal != nil {
			parts[p.part] += p.cost * s.lp.Value(p.col)
		}
	}
	return parts
}

// value returns the value of a column in the last solution, and 0 for -1.
func (s *stage) value(col int) float64 {
	if col < 0 {
		return 0
	}
	return s.lp.Value(col)
}

// flowMW returns the mean flow of a line, negative from To to From.
func (s *stage) flowMW(l int) float64 {
	return s.mean(func(w *loadBlock) float64 { return s.lp.Value(w.direct[l]) - s.lp.Value(w.reverse[l]) })
}

// marginalCost returns the mean cost over the stage of one more MWh of load at a bus.
func (s *stage) marginalCost(b int) float64 {
	return s.mean(func(w *loadBlock) float64 { return s.lp.Dual(w.balance[b]) / w.hours })
}

// end returns the state at the end of the stage in the last solution, the storage clamped to its bounds. It
// is valid until the next set.
func (s *stage) end(c *Case) []float64 {
	for r, res := range c.Reservoirs {
		s.v[r] = min(max(s.v[r], 0), res.MaxStorage)
	}
	return s.v
}

// slope adds weight times the derivatives of the optimum by the initial state to dst.
func (s *stage) slope(dst []float64, weight float64) {
	for r, row := range s.water {
		dst[r] += weight * s.lp.Dual(row)
	}
	if s.par == nil {
		return
	}
	byInflow, byNext := make([]float64, len(s.water)), make([]float64, len(s.v)-len(s.water))
	for r, row := range s.water {
		byInflow[r] = weight * s.fill * s.lp.Dual(row)
	}
	for i, tail := range s.tails {
		dual := weight * s.lp.Dual(s.base+i)
		for k, b := range tail[1:] {
			byNext[k] += dual * b
		}
	}
	s.par.derive(dst[len(s.water):], byInflow, byNext, s.season)
}
