//go:build unix

package spawn

// number returns what rank i of this node is called.
func (j *Job) number(i int) int {
	if j.cfg.Part == nil {
		return i
	}
	return j.cfg.Part.First + i
}

// size returns how many ranks there are in all.
func (j *Job) size() int {
	if j.cfg.Part == nil {
		return j.cfg.Ranks
	}
	return j.cfg.Part.Size
}

// tellEnd tells the larger job's launcher of a rank's end.
func (s *state) tellEnd(e exit) {
	status, how := describe(e)
	s.cfg.Part.Ended(End{s.number(e.rank), status, how, seconds(e.at.Sub(s.begun)), s.ranks[e.rank].drained})
}

// Stop ends the job without a word.
func (j *Job) Stop() { j.send(stopping{}) }
