// Command cohort starts programs as many ranks, says what a machine offers them,
// measures what ranks can do on it, and says what those of a job did last. See
// docs/launcher.md.
package main
