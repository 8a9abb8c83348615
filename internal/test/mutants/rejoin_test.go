package mutants

// Ranks that join the next world of their job.
var rejoinMutants = []mutant{
	{file: "rejoin_survivors.go",
		old: `make([]byte, 1), other, 0)`,
		new: `make([]byte, 1), min(other, AnySource), 0)`,
		why: "survivors wait for a rank that has closed its world", test: ". TestSurvivorsRejoinInEveryOrder", plain: true},
	{file: "rejoin_survivors.go",
		old: `		_ = d.Revoke()
`,
		why: "survivors wait for a rank that has failed to open the next world", test: ". TestSurvivorsRejoinInEveryOrder", plain: true},
	{file: "rejoin_survivors.go",
		old: `			go a.joined.Close() // without`,
		new: `			// without`,
		why: "a world that not all survivors have joined stays open", test: ". TestSurvivorsRejoinInEveryOrder", plain: true},
	{file: "rejoin_survivors.go",
		old: `		case err == nil && all == 1:`,
		new: `		case err == nil && max(all, flag) == 1:`,
		why: "a survivor that has joined a world uses it, though others have not", test: ". TestSurvivorsRejoinInEveryOrder", plain: true},
	{file: "internal/generation/client.go",
		old: `			go attempt.Leave() // without`,
		new: `			// without`,
		why: "a world that not all processes have joined stays open", test: ". TestReplacementsRejoinInEveryOrder", plain: true},
	{file: "internal/generation/client.go",
		old: `func() bool { return c.entry.broken })`,
		new: `func() bool { return false })`,
		why: "a process waits for one that has died while they connect", test: ". TestReplacementsRejoinInEveryOrder", plain: true},
}
