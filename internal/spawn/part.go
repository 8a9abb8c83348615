//go:build unix

package spawn

// number returns the number in the whole job of rank i of this node.
func (j *Job) number(i int) int {
	if j.cfg.Part == nil {
		return i
	}
	return j.cfg.Part.First + i
}

// size returns the number of ranks of the whole job.
func (j *Job) size() int {
	if j.cfg.Part == nil {
		return j.cfg.Ranks
	}
	return j.cfg.Part.Size
}
