package main

import (
	"fmt"
	"io"
)

// printRow writes a row of the table, after its head if it is the first one.
func printRow(w io.Writer, r result, first bool) error {
	text := fmt.Sprintf("%12d %14s %14s %11.0f ns\n", r.Bytes, microseconds(float64(r.Usec)), throughput(r), r.Handover)
	if first {
		text = fmt.Sprintf("%s on %s, %d ranks\n%12s %14s %14s %14s\n", r.Op, r.Lib, r.Ranks, "bytes", "time", "throughput", "handover") + text
	}
	_, err := io.WriteString(w, text)
	return err
}

// microseconds writes a time with three digits in the unit that suits it.
func microseconds(us float64) string {
	switch {
	case us < 1:
		return fmt.Sprintf("%.0f ns", us*1e3)
	case us < 1e3:
		return fmt.Sprintf("%s us", digits(us))
	case us < 1e6:
		return fmt.Sprintf("%s ms", digits(us/1e3))
	}
	return fmt.Sprintf("%s s", digits(us/1e6))
}

// throughput writes the bytes of a call over its time; without bytes, the calls.
func throughput(r result) string {
	if r.Bytes == 0 {
		return fmt.Sprintf("%s M/s", digits(1/float64(r.Usec)))
	}
	mb := float64(r.Bytes) / float64(r.Usec) // 1 B/us is 1 MB/s
	if mb < 1e3 {
		return digits(mb) + " MB/s"
	}
	return digits(mb/1e3) + " GB/s"
}

func digits(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
