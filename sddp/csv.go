package sddp

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// csvRow is a row of a CSV file.
type csvRow struct {
	line    int
	keys    []string  // of the key columns
	numbers []float64 // of the named columns, in the order of the names
}

// readCSV reads a CSV file. Its first line names the columns: the keys first, then the names in any order.
// The numbers are from lo to hi. It records a problem for what is wrong and returns the valid rows.
func readCSV(p *problems, file string, data []byte, keys, names []string, lo, hi float64) (rows []csvRow) {
	r := csv.NewReader(bytes.NewReader(data))
	r.TrimLeadingSpace, r.ReuseRecord, r.FieldsPerRecord = true, true, len(keys)+len(names)
	want := fmt.Sprintf("the columns %s", strings.Join(slices.Concat(keys, names), ", "))
	head, err := r.Read()
	if err != nil && !errors.Is(err, csv.ErrFieldCount) {
		p.add(file, "", "%s; want %s", csvText(err), want)
		return nil
	}
	at := make([]int, len(names)) // columns
	for i, name := range names {
		at[i] = slices.Index(head, name)
	}
	if err != nil || !slices.Equal(head[:len(keys)], keys) || slices.Min(append(at, 0)) < 0 {
		p.add(file, "line 1", "got the columns %s, want %s", brief([]byte(strings.Join(head, ", "))), want)
		return nil
	}
	for {
		record, err := r.Read()
		if err != nil {
			if text := csvText(err); text != "" {
				p.add(file, "", "%s", text)
			}
			return rows
		}
		row := csvRow{keys: slices.Clone(record[:len(keys)]), numbers: make([]float64, len(names))}
		row.line, _ = r.FieldPos(0)
		for i, k := range at {
			x, err := strconv.ParseFloat(record[k], 64)
			if err != nil || math.IsNaN(x) || x < lo || x > hi {
				p.add(file, fmt.Sprintf("line %d, column %s", row.line, names[i]), "got %q, want a number from %g to %g", record[k], lo, hi)
				x = lo
			}
			row.numbers[i] = x
		}
		rows = append(rows, row)
	}
}

// csvText describes an error of a CSV reader; it is empty at the end of the file.
func csvText(err error) string {
	var parse *csv.ParseError
	switch {
	case errors.As(err, &parse):
		return fmt.Sprintf("line %d: %v", parse.Line, parse.Err)
	case err.Error() == "EOF":
		return ""
	}
	return err.Error()
}
