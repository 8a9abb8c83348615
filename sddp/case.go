package sddp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Case is a hydrothermal system and its planning horizon. Stages are numbered from 0 in this package
// and from 1 in output. Power is in MW. Energy is in MW-month, the energy of one MW over one stage.
type Case struct {
	Name          string
	Description   string
	Currency      string
	Stages        int
	Periods       []string // names; stage t has the data of period t mod len(Periods)
	HoursPerStage float64
	DeficitCost   float64 // per MWh
	SpillCost     float64 // per MWh
	Buses         []Bus
	Thermals      []Thermal
	Reservoirs    []Reservoir
	Lines         []Line
}

// Bus is a node of the network.
type Bus struct {
	Name   string
	LoadMW []float64 // per period; nil for a bus without load, which has no deficit
}

// Thermal is a thermal power plant.
type Thermal struct {
	Name         string
	Bus          int
	MinMW, MaxMW float64
	CostPerMWh   float64
}

// Reservoir is stored water, as energy, with its power plants.
type Reservoir struct {
	Name                       string
	Bus                        int
	MaxStorage, InitialStorage float64 // MW-month
	MaxGenerationMW            float64
	InflowMean, InflowStd      []float64 // MW-month, per period
}

// Line joins two buses.
type Line struct {
	From, To            int
	DirectMW, ReverseMW float64 // capacity from From to To, and back
	CostPerMWh          float64
}

// The format named in case.json.
const (
	caseFormat  = "cohort-sddp-case"
	caseVersion = 1
)

// The limits of a case: far above any real case, and low enough that a wrong file cannot exhaust
// memory.
const (
	maxStages  = 1200
	maxPeriods = 1200
	maxItems   = 10000
	maxFigure  = 1e12
	maxCost    = 1e9
	maxStd     = 100 // of an inflow, relative to its mean
	maxFile    = 64 << 20
)

// caseFiles are the files of a case, in the order they are read.
var caseFiles = [...]string{"case.json", "buses.json", "thermals.json", "reservoirs.json", "lines.json"}

// caseText holds the contents of caseFiles.
type caseText [len(caseFiles)][]byte

// ReadCase reads a case from a folder.
//
// Local: [LoadCase] reads one for all ranks.
//
// Errors: up to ten [*FieldError], each with the file, the field, and what is allowed there.
func ReadCase(dir string) (*Case, error) {
	text, err := readCaseText(dir)
	if err != nil {
		return nil, err
	}
	return parseCase(dir, text)
}

// readCaseText reads the files of a case.
func readCaseText(dir string) (text caseText, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return text, fmt.Errorf("case %s: %w", dir, plainError(err))
	}
	if !info.IsDir() {
		return text, fmt.Errorf("case %s: it is a file; want a folder with %s", dir, strings.Join(caseFiles[:], ", "))
	}
	for i, name := range caseFiles {
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return text, &FieldError{File: file, Text: "missing; a case has the files " + strings.Join(caseFiles[:], ", ")}
		case err == nil && info.Size() > maxFile:
			return text, &FieldError{File: file, Text: fmt.Sprintf("%d bytes exceed the limit of %d", info.Size(), maxFile)}
		}
		if text[i], err = os.ReadFile(file); err != nil {
			return text, fmt.Errorf("%s: %w", file, plainError(err))
		}
	}
	return text, nil
}

// plainError removes the path from an error whose message names the path anyway.
func plainError(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// parseCase reads a case from the text of its files. dir appears in errors only.
func parseCase(dir string, text caseText) (*Case, error) {
	p := &problems{}
	var file [len(caseFiles)]*object
	for i, name := range caseFiles {
		file[i] = openObject(p, filepath.Join(dir, name), text[i])
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	c := &Case{}
	c.readHead(file[0])
	if err := p.err(); err != nil {
		return nil, err // the other files cannot be checked without the periods
	}
	buses := c.readBuses(file[1])
	c.readThermals(file[2], buses)
	c.readReservoirs(file[3], buses)
	c.readLines(file[4], buses)
	if err := p.err(); err != nil {
		return nil, err
	}
	if err := c.checkStages(dir); err != nil {
		return nil, err
	}
	return c, nil
}

// readHead reads case.json.
func (c *Case) readHead(o *object) {
	if !o.constant("format", caseFormat) {
		return
	}
	if o.whole("version", caseVersion, caseVersion) == 0 {
		return
	}
	c.Name = o.text("name")
	if o.has("description") {
		c.Description = o.text("description")
	}
	c.Currency = "$"
	if o.has("currency") {
		c.Currency = o.text("currency")
	}
	c.Stages = int(o.whole("stages", 2, maxStages))
	periods := o.list("periods", fmt.Sprintf("a list of 1 to %d names", maxPeriods))
	if o.has("periods") && (len(periods) < 1 || len(periods) > maxPeriods) {
		o.add(o.file, "periods", "got %d names, want 1 to %d", len(periods), maxPeriods)
		periods = nil
	}
	for i, raw := range periods {
		c.Periods = append(c.Periods, readText(o.problems, o.file, fmt.Sprintf("periods[%d]", i), "a name", raw))
	}
	c.HoursPerStage = o.number("hours_per_stage", 1e-3, 1e5)
	c.DeficitCost = o.number("deficit_cost", 0, maxCost)
	c.SpillCost = o.number("spill_cost", 0, maxCost)
	o.asked = append(o.asked, "description", "currency")
	o.done()
}

// uniqueName reads the field name of an object and records a problem if it is not unique.
func uniqueName(o *object, seen map[string]int, index int) string {
	name := o.text("name")
	if name == "" {
		return name
	}
	if other, taken := seen[name]; taken {
		o.add(o.file, o.field("name"), "got %q, the name of element %d too; want every name once", name, other)
	} else {
		seen[name] = index
	}
	return name
}

// busOf reads a field that names a bus.
func busOf(o *object, field string, buses map[string]int) int {
	name := o.text(field)
	if name == "" {
		return 0
	}
	bus, ok := buses[name]
	if !ok {
		o.add(o.file, o.field(field), "got %q, want the name of a bus in %s", name, caseFiles[1])
	}
	return bus
}

// readBuses reads buses.json and returns the index of every name.
func (c *Case) readBuses(f *object) map[string]int {
	seen := map[string]int{}
	for i, o := range f.objects("buses", maxItems) {
		b := Bus{Name: uniqueName(o, seen, i)}
		if o.has("load_mw") {
			b.LoadMW = o.series("load_mw", len(c.Periods), 0, maxFigure)
		} else {
			o.asked = append(o.asked, "load_mw")
		}
		o.done()
		c.Buses = append(c.Buses, b)
	}
	if f.has("buses") && len(c.Buses) == 0 {
		f.add(f.file, "buses", "got none, want at least one bus")
	}
	f.done()
	return seen
}

// readThermals reads thermals.json.
func (c *Case) readThermals(f *object, buses map[string]int) {
	seen := map[string]int{}
	for i, o := range f.objects("thermals", maxItems) {
		t := Thermal{Name: uniqueName(o, seen, i), Bus: busOf(o, "bus", buses)}
		t.MinMW = o.number("min_mw", 0, maxFigure)
		t.MaxMW = o.number("max_mw", t.MinMW, maxFigure)
		t.CostPerMWh = o.number("cost_per_mwh", 0, maxCost)
		o.done()
		c.Thermals = append(c.Thermals, t)
	}
	f.done()
}

// readReservoirs reads reservoirs.json.
func (c *Case) readReservoirs(f *object, buses map[string]int) {
	seen := map[string]int{}
	for i, o := range f.objects("reservoirs", maxItems) {
		r := Reservoir{Name: uniqueName(o, seen, i), Bus: busOf(o, "bus", buses)}
		known := len(o.errs)
		r.MaxStorage = o.number("max_storage", 0, maxFigure)
		most := r.MaxStorage
		if len(o.errs) > known {
			most = maxFigure // the storage is wrong, not what it limits
		}
		r.InitialStorage = o.number("initial_storage", 0, most)
		r.MaxGenerationMW = o.number("max_generation_mw", 0, maxFigure)
		known = len(o.errs)
		r.InflowMean = o.series("inflow_mean", len(c.Periods), 0, maxFigure)
		wrong := len(o.errs) > known
		r.InflowStd = o.series("inflow_std", len(c.Periods), 0, maxFigure)
		for k, std := range r.InflowStd {
			field, mean := fmt.Sprintf("%s[%d]", o.field("inflow_std"), k), r.InflowMean[k]
			switch {
			case wrong:
			case std > 0 && mean == 0:
				o.add(o.file, field, "got %g, want 0 where inflow_mean is 0", std)
			case std > maxStd*mean:
				o.add(o.file, field, "got %g, want at most %d times inflow_mean, which is %g", std, maxStd, mean)
			}
		}
		o.done()
		c.Reservoirs = append(c.Reservoirs, r)
	}
	if f.has("reservoirs") && len(c.Reservoirs) == 0 {
		f.add(f.file, "reservoirs", "got none, want at least one reservoir")
	}
	f.done()
}

// readLines reads lines.json.
func (c *Case) readLines(f *object, buses map[string]int) {
	for _, o := range f.objects("lines", maxItems) {
		l := Line{From: busOf(o, "from", buses), To: busOf(o, "to", buses)}
		l.DirectMW = o.number("direct_mw", 0, maxFigure)
		l.ReverseMW = o.number("reverse_mw", 0, maxFigure)
		l.CostPerMWh = o.number("cost_per_mwh", 0, maxCost)
		if l.From == l.To && o.has("from") && o.has("to") {
			o.add(o.file, o.field("to"), "got the bus the line starts from, want another bus")
		}
		o.done()
		c.Lines = append(c.Lines, l)
	}
	f.done()
}

// maxStorage returns the largest storage of every reservoir.
func (c *Case) maxStorage() []float64 {
	var most []float64
	for _, r := range c.Reservoirs {
		most = append(most, r.MaxStorage)
	}
	return most
}

// Period returns the index of the period of a stage.
//
// Local.
func (c *Case) Period(stage int) int { return stage % len(c.Periods) }

// StageName returns the name of the period of a stage.
//
// Local.
func (c *Case) StageName(stage int) string { return c.Periods[c.Period(stage)] }

// SHA256 returns a hash, in hexadecimal, of everything in the case that a policy depends on. The
// layout of the files and the description do not matter.
//
// Local.
func (c *Case) SHA256() string {
	plain := *c
	plain.Description = ""
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(&plain); err != nil {
		panic(err) // a Case holds only strings and finite numbers
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:])
}
