package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/cohort-hpc/cohort/sddp"
)

// info tells what a case holds.
func info(o *options, stdout, stderr io.Writer) int {
	c, err := sddp.ReadCase(o.dir)
	if err != nil {
		fmt.Fprintf(stderr, "sddp: %v\n", err)
		return statusFailed
	}
	text := c.Describe()
	if o.json {
		line, err := json.Marshal(c.Facts())
		if err != nil {
			fmt.Fprintf(stderr, "sddp: %v\n", err)
			return statusFailed
		}
		text = string(line) + "\n"
	}
	if _, err := io.WriteString(stdout, text); err != nil {
		fmt.Fprintf(stderr, "sddp: %v\n", err)
		return statusFailed
	}
	return 0
}
