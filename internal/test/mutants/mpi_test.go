package mutants

// The meetings of ranks that call an MPI library together.
var mpiMutants = []mutant{
	{file: "backend/mpi/turn.go",
		old: `	p.meeting, p.decider = number, order[0]
`,
		new: `	p.meeting, p.decider = number, order[0]
	p.stage = max(p.stage, promised)
`,
		why: "a member promises when it comes", test: "backend/mpi TestMembersMakeTheCallOrNoneDoes", plain: true},
	{file: "backend/mpi/turn.go",
		old: `	if p.stage < promised {`,
		new: `	if p.stage <= promised {`,
		why: "a member that has promised leaves without the answer", test: "backend/mpi TestMembersMakeTheCallOrNoneDoes", plain: true},
	{file: "backend/mpi/turn.go",
		old: `	for _, r := range m.order {
		t.say(r, kind`,
		new: `	for r := range m.stages {
		t.say(r, kind`,
		why: "a member that comes after the refusal does not learn of it", test: "backend/mpi TestMembersMakeTheCallOrNoneDoes", plain: true},
	{file: "backend/mpi/turn.go",
		old: `			if t.ordered {
				return false
			}
`,
		why: "two meetings wait for each other's turns", test: "backend/mpi TestMembersMakeTheCallOrNoneDoes", plain: true},
	{file: "backend/mpi/turn.go",
		old: `	case len(m.stages) == len(m.order) && t.invite(number, m):`,
		new: `	case t.invite(number, m):`,
		why: "the members call before one that has yet to come", test: "backend/mpi TestMembersMakeTheCallOrNoneDoes", plain: true},
}
