// Package slurmtest runs cohort's programs as jobs of a real Slurm, which
// scripts/slurm starts for its tests.
package slurmtest
