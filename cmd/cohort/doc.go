// Command cohort starts programs as many ranks, checks what a machine offers them,
// measures their communication, and shows what the ranks of a job did last. See
// docs/launcher.md.
package main
