// Package pmi lets the ranks of a job find each other through the launcher that started them. A Space is the key-value
// space that the launcher keeps for the job.
package pmi
