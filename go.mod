module github.com/cohort-hpc/cohort

go 1.26
