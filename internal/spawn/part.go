package spawn

// Part says that the ranks of a [Job] are those of one host of a larger job, whose launcher judges how
// they end: it is told of each, and nothing follows from it here.
type Part struct {
	First int // the number of the first rank
	Size  int // how many ranks the larger job has

	// Ended is called for every rank that has ended, in the order in which they did. It must not wait.
	Ended func(End)
	// Log is called with what this package would write about the job.
	Log func(text string)
}

// End is how a rank ended.
type End struct {
	Rank    int             // its number in the larger job
	Status  int             // its own, or 128 + the signal that killed it
	How     string          // "exited with status 3"
	After   string          // how long the job had run: "1.2 s"
	Drained <-chan struct{} // closed when its output has been passed on
}

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
