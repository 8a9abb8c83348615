package sddp

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

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
	maxTiers   = 20
	maxBlocks  = 100
	maxRate    = 10 // of discount, per year
	maxFile    = 64 << 20
)

// caseFiles are the files of a case, in the order they are read.
var caseFiles = [...]string{"case.json", "buses.json", "thermals.json", "reservoirs.json", "lines.json"}

// caseTables are the files that a case has if it needs them.
var caseTables = [...]string{correlationFile, openingsFile, historyFile, terminalFile}

// tables returns the path and the text of one of caseTables. The text is nil if the case has no such file.
type tables func(name string) (file string, data []byte)

// caseText holds the contents of caseFiles, then those of caseTables. A table that the case does not have is nil.
type caseText [len(caseFiles) + len(caseTables)][]byte

// ReadCase reads a case from a folder.
//
// Not collective: [LoadCase] reads one for all ranks.
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
	for i, name := range slices.Concat(caseFiles[:], caseTables[:]) {
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		switch {
		case i >= len(caseFiles) && errors.Is(err, fs.ErrNotExist):
			continue
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
	for i := range text { // spreadsheets begin UTF-8 with a mark
		text[i] = bytes.TrimPrefix(text[i], []byte("\ufeff"))
	}
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
	past := c.readReservoirs(file[3], file[0], buses)
	c.readLines(file[4], buses)
	if err := p.err(); err != nil {
		return nil, err // the inflows cannot be checked without the reservoirs
	}
	table := func(name string) (string, []byte) {
		return filepath.Join(dir, name), text[len(caseFiles)+slices.Index(caseTables[:], name)]
	}
	if file[0].has("inflow_model") {
		c.readInflowModel(file[0], past, table)
	}
	if err := p.err(); err == nil && file[0].has("terminal_stage") {
		c.readTerminal(file[0], table) // with the lagged inflows of the model
	}
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
	if o.optional("description") {
		c.Description = o.text("description")
	}
	c.Currency = "$"
	if o.optional("currency") {
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
	c.readCalendar(o)
	c.HoursPerStage = o.varying("hours_per_stage", len(c.Periods), 1e-3, 1e5)
	c.DeficitCost = o.number("deficit_cost", 0, maxCost)
	c.SpillCost = o.number("spill_cost", 0, maxCost)
	if o.optional("deficit_tiers") {
		c.readTiers(o.objects("deficit_tiers", maxTiers))
	}
	if o.optional("blocks") {
		c.readBlocks(o, o.objects("blocks", maxBlocks))
	}
	o.asked = append(o.asked, "inflow_model", "par_max_order", "terminal_stage") // read with the reservoirs
	if o.optional("discount_rate") {
		c.DiscountRate = o.number("discount_rate", 0, maxRate)
	}
	o.done()
}

// readCalendar reads the period of the first stage, and the seasons with that of the first period.
func (c *Case) readCalendar(o *object) {
	oneOf := func(field string, names []string) int {
		name := o.text(field)
		i := slices.Index(names, name)
		if i < 0 && name != "" {
			o.add(o.file, field, "got %q, want one of %q", name, names)
		}
		return max(i, 0)
	}
	if o.optional("first_period") {
		c.FirstPeriod = oneOf("first_period", c.Periods)
	}
	if !o.optional("seasons") {
		return
	}
	for i, raw := range o.list("seasons", fmt.Sprintf("a list of 1 to %d names", maxPeriods)) {
		c.Seasons = append(c.Seasons, readText(o.problems, o.file, fmt.Sprintf("seasons[%d]", i), "a name", raw))
	}
	if n := len(c.Seasons); n < 1 || n > maxPeriods {
		o.add(o.file, "seasons", "got %d names, want 1 to %d", n, maxPeriods)
		return
	}
	if o.optional("first_season") {
		c.FirstSeason = oneOf("first_season", c.Seasons)
	}
}

// readBlocks reads the field blocks, whose shares must add up to 1 but for rounding.
func (c *Case) readBlocks(head *object, blocks []*object) {
	seen, sum := map[string]int{}, 0.0
	for i, o := range blocks {
		b := Block{Name: uniqueName(o, seen, i), Share: o.number("hours_share", 1e-4, 1)}
		o.done()
		c.Blocks = append(c.Blocks, b)
		sum += b.Share
	}
	if len(blocks) > 0 && math.Abs(sum-1) > 1e-6 {
		head.add(head.file, "blocks", "the hours_share add up to %g, want 1", sum)
	}
	for i := range c.Blocks {
		c.Blocks[i].Share /= sum
	}
}

// readTiers reads the field deficit_tiers. Costs must rise and shares stay below the whole load.
func (c *Case) readTiers(tiers []*object) {
	whole, least := 1.0, 0.0
	for _, o := range tiers {
		tier := DeficitTier{Share: o.number("share_of_load", 0, whole), CostPerMWh: o.number("cost_per_mwh", least, c.DeficitCost)}
		o.done()
		c.DeficitTiers = append(c.DeficitTiers, tier)
		whole, least = whole-tier.Share, tier.CostPerMWh
	}
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
		if o.optional("load_mw") {
			c.readLoad(o, &b)
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

// readLoad reads the load of a bus: a series for all blocks, or a list with one per block.
func (c *Case) readLoad(o *object, b *Bus) {
	first := bytes.TrimLeft(bytes.TrimPrefix(o.values["load_mw"], []byte("[")), " \t\r\n")
	if len(c.Blocks) == 0 || !bytes.HasPrefix(first, []byte("[")) {
		b.LoadMW = o.series("load_mw", len(c.Periods), 0, maxFigure)
		return
	}
	b.BlockLoadMW = o.table("load_mw", len(c.Blocks), len(c.Periods), 0, maxFigure)
	b.LoadMW = make([]float64, len(c.Periods))
	for k, loads := range b.BlockLoadMW {
		for p, load := range loads {
			b.LoadMW[p] += c.Blocks[k].Share * load
		}
	}
}

// readThermals reads thermals.json.
func (c *Case) readThermals(f *object, buses map[string]int) {
	seen := map[string]int{}
	for i, o := range f.objects("thermals", maxItems) {
		t := Thermal{Name: uniqueName(o, seen, i), Bus: busOf(o, "bus", buses)}
		t.MinMW = o.varying("min_mw", len(c.Periods), 0, maxFigure)
		t.MaxMW = o.varying("max_mw", len(c.Periods), 0, maxFigure)
		o.atLeast("max_mw", t.MaxMW, t.MinMW, "min_mw", len(c.Periods))
		t.CostPerMWh = o.varying("cost_per_mwh", len(c.Periods), 0, maxCost)
		o.done()
		c.Thermals = append(c.Thermals, t)
	}
	f.done()
}

// readReservoirs reads reservoirs.json and returns the inflows before the first stage, which a PAR needs.
func (c *Case) readReservoirs(f *object, head *object, buses map[string]int) (past [][]float64) {
	seen := map[string]int{}
	all := f.objects("reservoirs", maxItems)
	for i, o := range all {
		r := Reservoir{Name: uniqueName(o, seen, i), Bus: busOf(o, "bus", buses)}
		c.readStorage(o, &r)
		r.MaxGenerationMW = o.varying("max_generation_mw", len(c.Periods), 0, maxFigure)
		if !head.has("inflow_model") || head.says("inflow_model", "lognormal", "correlated") {
			c.readInflow(o, &r)
		} else {
			o.asked = append(o.asked, "inflow_mean", "inflow_std") // another model has other inflows
		}
		if o.optional("first_inflow") {
			first := o.number("first_inflow", 0, maxFigure)
			if r.FirstInflow = &first; head.says("inflow_model", "openings") {
				o.add(o.file, o.field("first_inflow"), "got %g, want none with the inflow_model \"openings\", whose table has the first stage", first)
			}
		}
		past = append(past, nil)
		if head.says("inflow_model", "par") && o.optional("past_inflows") {
			items := o.list("past_inflows", "a list of inflows, the newest first")
			past[i] = make([]float64, len(items))
			readSeries(o.problems, o.file, o.field("past_inflows"), items, past[i], 0, maxFigure)
		}
		if o.optional("productivity_mw_per_m3s") {
			r.Productivity = o.number("productivity_mw_per_m3s", 1e-6, 1e6)
		}
		if o.optional("min_outflow") {
			r.MinOutflow = o.varying("min_outflow", len(c.Periods), 0, maxFigure)
			r.MinOutflowPenalty = o.number("min_outflow_penalty", 0, maxCost)
		}
		o.asked = append(o.asked, "downstream") // readCascade reads it
		o.done()
		c.Reservoirs = append(c.Reservoirs, r)
	}
	c.checkWater(all, head)
	c.readCascade(all, seen)
	f.done()
	return past
}

// readStorage reads the limits of storage.
func (c *Case) readStorage(o *object, r *Reservoir) {
	known := len(o.errs)
	r.MaxStorage = o.number("max_storage", 0, maxFigure)
	most := r.MaxStorage
	if len(o.errs) > known {
		most = maxFigure // the storage is wrong, not what it limits
	}
	r.InitialStorage = o.number("initial_storage", 0, most)
	if o.optional("min_storage") {
		r.MinStorage = o.varying("min_storage", len(c.Periods), 0, most)
		r.MinStoragePenalty = o.number("min_storage_penalty", 0, maxCost)
	}
}

// readInflow reads the inflow.
func (c *Case) readInflow(o *object, r *Reservoir) {
	known := len(o.errs)
	r.InflowMean = o.series("inflow_mean", len(c.seasons()), 0, maxFigure)
	wrong := len(o.errs) > known
	r.InflowStd = o.series("inflow_std", len(c.seasons()), 0, maxFigure)
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
}

// checkWater records a problem unless the reservoirs have one unit, and stages of one length if that unit
// is the energy over a stage.
func (c *Case) checkWater(all []*object, head *object) {
	const field = "productivity_mw_per_m3s"
	for i, o := range all[min(1, len(all)):] {
		if o.has(field) != all[0].has(field) {
			o.add(o.file, o.field(field), "given for reservoir %q or %q only, want it for all reservoirs or for none: storage is in hm3 with it and in MW-month without",
				c.Reservoirs[0].Name, c.Reservoirs[1+i].Name)
			return
		}
	}
	if len(all) > 0 && !all[0].has(field) && c.HoursPerStage.min() != c.HoursPerStage.max() {
		head.add(head.file, "hours_per_stage", "stages of different lengths need reservoirs in hm3; want one length, or %s in %s: a MW-month is the energy of 1 MW over one stage",
			field, caseFiles[3])
	}
}

// readCascade reads the fields downstream.
func (c *Case) readCascade(all []*object, index map[string]int) {
	below := make([]int, len(c.Reservoirs)) // 1 + the next reservoir, 0 for none
	for i, o := range all {
		if !o.has("downstream") {
			continue
		}
		name := o.text("downstream")
		down, ok := index[name]
		switch {
		case name == "":
			continue
		case !ok || down == i:
			o.add(o.file, o.field("downstream"), "got %q, want the name of another reservoir", name)
			continue
		case c.Reservoirs[i].Productivity == 0:
			o.add(o.file, o.field("downstream"), "got %q, want no such field without productivity_mw_per_m3s: water measured as energy cannot flow to another plant", name)
			continue
		}
		below[i] = 1 + down
		c.Reservoirs[down].Upstream = append(c.Reservoirs[down].Upstream, i)
	}
	for i, o := range all {
		at := below[i]
		for steps := 0; at > 0 && at != 1+i && steps < len(below); steps++ {
			at = below[at-1]
		}
		if at == 1+i {
			o.add(o.file, o.field("downstream"), "got %q, from which the water returns to this reservoir; want rivers without circles", c.Reservoirs[below[i]-1].Name)
			return
		}
	}
}

// readLines reads lines.json.
func (c *Case) readLines(f *object, buses map[string]int) {
	for _, o := range f.objects("lines", maxItems) {
		l := Line{From: busOf(o, "from", buses), To: busOf(o, "to", buses)}
		l.DirectMW = o.varying("direct_mw", len(c.Periods), 0, maxFigure)
		l.ReverseMW = o.varying("reverse_mw", len(c.Periods), 0, maxFigure)
		l.CostPerMWh = o.varying("cost_per_mwh", len(c.Periods), 0, maxCost)
		if l.From == l.To && o.has("from") && o.has("to") {
			o.add(o.file, o.field("to"), "got the bus the line starts from, want another bus")
		}
		o.done()
		c.Lines = append(c.Lines, l)
	}
	f.done()
}
