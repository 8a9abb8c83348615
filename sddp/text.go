package sddp

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// load returns the load of a bus in a stage, in MW.
func (c *Case) load(t, b int) float64 {
	if c.Buses[b].LoadMW == nil {
		return 0
	}
	return c.Buses[b].LoadMW[c.Period(t)]
}

// table returns a writer that aligns columns to the right.
func table(b *strings.Builder) *tabwriter.Writer {
	return tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// percent returns a part of a whole in percent, and a dash if the whole is 0.
func percent(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// plural returns a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// MoneyUnit returns the unit in which amounts of money of a size are easy to read, and how much of
// the case's currency one unit is.
//
// Not collective.
func (c *Case) MoneyUnit(size float64) (unit string, scale float64) {
	switch {
	case math.Abs(size) >= 1e9:
		return "10⁹ " + c.Currency, 1e9
	case math.Abs(size) >= 1e6:
		return "10⁶ " + c.Currency, 1e6
	}
	return c.Currency, 1
}
