// Package report presents the results of package sddp: as text, tables, charts, and one HTML page.
package report
