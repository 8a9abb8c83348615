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

// reportEnd reports a rank's end to the larger job's launcher.
func (s *state) reportEnd(e exit) {
	status, how := describe(e)
	s.cfg.Part.Ended(End{s.number(e.rank), status, how, seconds(e.at.Sub(s.begun)), s.ranks[e.rank].drained})
}

// Stop ends the job without a message.
func (j *Job) Stop() { j.send(stopping{}) }
