// Command cohort starts programs as many ranks, says what a machine offers them,
// and measures what ranks can do on it. See docs/launcher.md.
package main
