// Package text formats counts, shares and tables for the summaries of package sddp and its reports.
package text

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Table returns a writer that aligns columns to the right.
func Table(b *strings.Builder) *tabwriter.Writer {
	return tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// Percent returns a part of a whole in percent, and a dash if the whole is 0.
func Percent(part, whole float64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}

// Plural returns a count with its noun.
func Plural(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
