//go:build cohort_noshm

package cohort

func init() {
	register("shm", known{priority: 40, missing: "this program was built with the tag cohort_noshm"})
}
