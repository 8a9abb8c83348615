//go:build cohort_notcp

package cohort

func init() {
	register("tcp", known{priority: 30, missing: "this program was built with the tag cohort_notcp"})
}
