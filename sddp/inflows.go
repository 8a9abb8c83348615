package sddp

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// InflowModel describes the inflows of a case that are not lognormal and independent. One of its fields is
// set.
type InflowModel struct {
	Openings    [][]Opening   `json:",omitempty"` // by stage: all inflows that are possible
	Record      [][][]float64 `json:",omitempty"` // by year, season and reservoir: years that are equally likely
	Correlation [][][]float64 `json:",omitempty"` // of the logarithms of lognormal inflows, by season (or one for all), reservoir and reservoir
	PAR         *PAR          `json:",omitempty"`
}

// Opening is a possible inflow of a stage.
type Opening struct {
	Probability float64
	Inflow      []float64 // by reservoir
}

// The tables of a case.
const (
	openingsFile    = "openings.csv"
	historyFile     = "history.csv"
	correlationFile = "correlation.csv"
	terminalFile    = "terminal_cuts.csv"
)

// inflowKinds are the values of the field inflow_model, and the table that each reads.
var inflowKinds = map[string]string{
	"lognormal": "", "correlated": correlationFile, "openings": openingsFile, "history": historyFile, "par": historyFile,
}

// laws reports whether the case gives the mean and the deviation of each inflow.
func (c *Case) laws() bool { return c.Inflows == nil || c.Inflows.Correlation != nil }

// openings returns the number of openings of a stage after the first, if want are drawn where they can be.
func (c *Case) openings(want int) int {
	switch {
	case c.Inflows == nil:
	case c.Inflows.Openings != nil:
		want = 0
		for _, stage := range c.Inflows.Openings {
			want = max(want, len(stage))
		}
	case c.Inflows.Record != nil:
		want = len(c.Inflows.Record)
	}
	return want
}

// par returns the autoregressive model of the inflows, or nil.
func (c *Case) par() *PAR {
	if c.Inflows == nil {
		return nil
	}
	return c.Inflows.PAR
}

// meanInflow returns the expected inflow of a stage, by reservoir; with a PAR that of the record.
func (c *Case) meanInflow(stage int) []float64 {
	mean, p := make([]float64, len(c.Reservoirs)), c.Season(stage)
	for r, res := range c.Reservoirs {
		switch {
		case c.laws():
			mean[r] = res.InflowMean[p]
		case c.Inflows.Openings != nil:
			for _, o := range c.Inflows.Openings[stage] {
				mean[r] += o.Probability * o.Inflow[r]
			}
		case c.Inflows.Record != nil:
			for _, year := range c.Inflows.Record {
				mean[r] += year[p][r] / float64(len(c.Inflows.Record))
			}
		default:
			mean[r] = c.Inflows.PAR.Mean[p][r]
		}
	}
	return mean
}

// readInflowModel reads the field inflow_model of case.json and the table that it names. past holds the
// inflows before the first stage, by reservoir.
func (c *Case) readInflowModel(o *object, past [][]float64, table tables) {
	kind := o.text("inflow_model")
	name, ok := inflowKinds[kind]
	if !ok {
		o.add(o.file, "inflow_model", "got %q, want lognormal, correlated, openings, history or par", kind)
		return
	}
	if name == "" {
		return
	}
	if len(c.Reservoirs) == 0 {
		o.add(o.file, "inflow_model", "got %q, want none in a case without reservoirs", kind)
		return
	}
	file, data := table(name)
	if data == nil {
		o.add(file, "", "missing; the inflow_model %q of %s needs it", kind, caseFiles[0])
		return
	}
	most := maxOrder
	if o.optional("par_max_order") {
		if kind != "par" {
			o.add(o.file, "par_max_order", "got one with the inflow_model %q, want it with par only", kind)
		}
		most = int(o.whole("par_max_order", 1, maxOrder))
	}
	c.Inflows = &InflowModel{}
	switch kind {
	case "correlated":
		c.readCorrelation(o.problems, file, data)
	case "openings":
		c.readOpenings(o.problems, file, data)
	case "history":
		c.Inflows.Record = c.readRecord(o.problems, file, data)
	case "par":
		if record := c.readRecord(o.problems, file, data); record != nil {
			c.Inflows.PAR = fitPAR(record, past, most, c.Season(0))
		}
	}
}

// readTerminal reads the field terminal_stage of case.json and the cuts of that stage in the table of cuts that
// another training has written. A table without cuts gives water no value.
func (c *Case) readTerminal(o *object, table tables) {
	stage := strconv.FormatInt(o.whole("terminal_stage", 1, maxStages), 10)
	file, data := table(terminalFile)
	if data == nil {
		o.add(file, "", "missing; the terminal_stage of %s needs it", caseFiles[0])
		return
	}
	rows := readCSV(o.problems, file, data, []string{"stage", "period", "cut"}, c.CutColumns(), -math.MaxFloat64, math.MaxFloat64)
	for _, row := range rows {
		if row.keys[0] == stage {
			c.Terminal = append(c.Terminal, row.numbers)
		}
	}
	if c.Terminal == nil && o.err() == nil && len(rows) > 0 {
		o.add(file, "", "no cuts of stage %s, the terminal_stage of %s", stage, caseFiles[0])
	}
}

// reservoirNames returns the names of the reservoirs.
func (c *Case) reservoirNames() (names []string) {
	for _, r := range c.Reservoirs {
		names = append(names, r.Name)
	}
	return names
}

// readOpenings reads a table with the stage (from 1), the probability and the inflows of each opening.
func (c *Case) readOpenings(p *problems, file string, data []byte) {
	c.Inflows.Openings = make([][]Opening, c.Stages)
	for _, row := range readCSV(p, file, data, []string{"stage", "probability"}, c.reservoirNames(), 0, maxFigure) {
		stage, err := strconv.Atoi(row.keys[0])
		if err != nil || stage < 1 || stage > c.Stages {
			p.add(file, fmt.Sprintf("line %d, column stage", row.line), "got %q, want a whole number from 1 to %d", row.keys[0], c.Stages)
			continue
		}
		probability, err := strconv.ParseFloat(row.keys[1], 64)
		if err != nil || !(probability > 0 && probability <= 1) {
			p.add(file, fmt.Sprintf("line %d, column probability", row.line), "got %q, want a number above 0 and up to 1", row.keys[1])
			continue
		}
		c.Inflows.Openings[stage-1] = append(c.Inflows.Openings[stage-1], Opening{probability, row.numbers})
	}
	if p.err() != nil {
		return
	}
	for t, all := range c.Inflows.Openings {
		sum := 0.0
		for _, o := range all {
			sum += o.Probability
		}
		if math.Abs(sum-1) > 1e-6 || len(all) > maxOpenings {
			p.add(file, "", "stage %d has %d openings whose probabilities add up to %g, want 1 to %d openings and a sum of 1", t+1, len(all), sum, maxOpenings)
			return
		}
		for k := range all {
			all[k].Probability /= sum
		}
	}
}

// readRecord reads a table with the year, the period and the inflows: every period of every year once, in
// order.
func (c *Case) readRecord(p *problems, file string, data []byte) (record [][][]float64) {
	rows := readCSV(p, file, data, []string{"year", "period"}, c.reservoirNames(), 0, maxFigure)
	names := c.seasons()
	n := len(names)
	for i, row := range rows {
		first := i - i%n
		if want := names[i%n]; row.keys[1] != want || row.keys[0] != rows[first].keys[0] {
			p.add(file, fmt.Sprintf("line %d", row.line), "got period %q of year %q, want %q of %q: "+
				"every period of a year, in order; seasons in case.json names other ones than those of the loads",
				row.keys[1], row.keys[0], want, rows[first].keys[0])
			return nil
		}
		if i == first {
			record = append(record, nil)
		}
		record[len(record)-1] = append(record[len(record)-1], row.numbers)
	}
	if len(rows)%n > 0 || len(record) < 2 || len(record) > maxOpenings {
		p.add(file, "", "got %d rows, want all %d periods of 2 to %d years", len(rows), n, maxOpenings)
		return nil
	}
	return record
}

// readCorrelation reads a matrix with a line and a column for each reservoir, or one for each period: then the
// first column is period.
func (c *Case) readCorrelation(p *problems, file string, data []byte) {
	keys, periods := []string{"reservoir"}, []string{""}
	if bytes.HasPrefix(data, []byte("period")) {
		keys, periods = []string{"period", "reservoir"}, c.seasons()
	}
	names := c.reservoirNames()
	rows := readCSV(p, file, data, keys, names, -1, 1)
	lines := map[[2]string][]float64{} // by period and reservoir
	for _, row := range rows {
		lines[[2]string{strings.Join(row.keys[:len(keys)-1], ""), row.keys[len(keys)-1]}] = row.numbers
	}
	for _, period := range periods {
		var matrix [][]float64
		for _, name := range names {
			row := lines[[2]string{period, name}]
			if row == nil || len(rows) != len(periods)*len(names) {
				p.add(file, "", "want one line for each %s, with the reservoirs %s", strings.Join(keys, " and "), strings.Join(names, ", "))
				return
			}
			matrix = append(matrix, row)
		}
		if text := c.wrongCorrelation(matrix); text != "" {
			p.add(file, "", "%s", strings.TrimPrefix(period+": "+text, ": "))
			return
		}
		c.Inflows.Correlation = append(c.Inflows.Correlation, matrix)
	}
}

// wrongCorrelation says why a matrix is no correlation of random numbers; it is empty if it is one.
func (c *Case) wrongCorrelation(matrix [][]float64) string {
	names := c.reservoirNames()
	for i, row := range matrix {
		for j := range i {
			if row[j] != matrix[j][i] {
				return fmt.Sprintf("the correlation of %s and %s is %g in one line and %g in another", names[i], names[j], row[j], matrix[j][i])
			}
		}
		if row[i] != 1 {
			return fmt.Sprintf("the correlation of %s with itself is %g, want 1", names[i], row[i])
		}
	}
	if cholesky(matrix) == nil {
		return "the matrix is not positive definite, so it is no correlation of random numbers"
	}
	return ""
}

// cholesky returns the lower triangular L with LL' = a, or nil if a is not positive definite.
func cholesky(a [][]float64) [][]float64 {
	l := make([][]float64, len(a))
	for i := range a {
		l[i] = make([]float64, len(a))
		for j := range i + 1 {
			sum := a[i][j]
			for k := range j {
				sum -= l[i][k] * l[j][k]
			}
			switch {
			case i > j:
				l[i][j] = sum / l[j][j]
			case sum <= 1e-12:
				return nil
			default:
				l[i][i] = math.Sqrt(sum)
			}
		}
	}
	return l
}
