//go:build !cohort_noshm

package cohort

import "github.com/cohort-hpc/cohort/backend/shm"

func init() { register("shm", known{priority: 40, open: common(shm.Open)}) }
