package mutants

// Ranks that call an MPI library together.
var mpiMutants = []mutant{
	{file: "backend/mpi/commit.go",
		old: `	p.number, p.coordinator = number, order[0]
`,
		new: `	p.number, p.coordinator = number, order[0]
	p.state = max(p.state, prepared)
`,
		why: "a member is prepared when it joins", test: "backend/mpi TestMembersMakeTheCallOrNoneDoes", plain: true},
	{file: "backend/mpi/commit.go",
		old: `	if p.state < prepared {`,
		new: `	if p.state <= prepared {`,
		why: "a prepared member withdraws without the decision", test: "backend/mpi TestMembersMakeTheCallOrNoneDoes", plain: true},
	{file: "backend/mpi/commit.go",
		old: `	for _, r := range x.order {
		t.tell(r, kind`,
		new: `	for r := range x.states {
		t.tell(r, kind`,
		why: "a member that joins after the abort does not learn of it", test: "backend/mpi TestMembersMakeTheCallOrNoneDoes", plain: true},
	{file: "backend/mpi/commit.go",
		old: `			if t.ordered {
				return false
			}
`,
		why: "two transactions wait for each other's locks", test: "backend/mpi TestMembersMakeTheCallOrNoneDoes", plain: true},
	{file: "backend/mpi/commit.go",
		old: `	switch all := len(x.states) == len(x.order) && !x.withdrawn &&`,
		new: `	switch all := !x.withdrawn &&`,
		why: "the members call before one that has yet to join", test: "backend/mpi TestMembersMakeTheCallOrNoneDoes", plain: true},
	{file: "backend/mpi/commit.go",
		old: `			if !t.tell(r, prepare, number, nil) {`,
		new: `			if t.tell(r, prepare, number, nil); false {`,
		why: "a member that cannot be told to prepare keeps the others waiting", test: "backend/mpi TestMembersMakeTheCallOrNoneDoes", plain: true},
	{file: "backend/mpi/handover.go",
		old: `	if !h.state.CompareAndSwap(callUnderWay, callEnded) {
		return false
	}
`,
		new: `	if h.state.Load() != callUnderWay {
		return false
	}
	h.state.Store(callEnded)
`,
		why: "the end of a call goes to a rank that has just given up", test: "backend/mpi TestInterleaveCallEndsAtDeadline"},
	{file: "backend/mpi/handover.go",
		old: `	return !h.state.CompareAndSwap(callUnderWay, callLeft)
`,
		new: `	return h.state.Load() == callEnded
`,
		why: "a rank that gives up does not say so", test: "backend/mpi TestInterleaveCallEndsAtDeadline"},
	{file: "backend/mpi/handover.go",
		old: `	h.news.Unpark()
`,
		new: ``,
		why: "nobody wakes the rank whose call has ended", test: "backend/mpi TestInterleaveCallEndsAtDeadline"},
}
