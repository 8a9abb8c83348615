package mutants

// How operations end: requests, sets, persistent operations, schedules.
var requestMutants = []mutant{
	{file: "backend/comm.go",
		old: `	word.Writing(r)
	r.Status, r.Err = st, err
	word.ReleaseUint32(&r.state, reqDone)
`,
		new: `	word.ReleaseUint32(&r.state, reqDone)
	word.Writing(r)
	r.Status, r.Err = st, err
`,
		why: "an operation that completes at once is ready before its result", test: "backend TestInterleaveRequestIsReadyWithItsResult"},
	{file: "internal/comm/withdraw.go",
		old: `	if b != nil && of != nil && k.job.vainWaits.covers(of) {
`,
		new: `	if false {
`,
		why: "each of many sends that are over waits for an answer", test: "internal/comm TestSendsThatAreOverWaitForAnswersOnce", plain: true},
	{file: "internal/comm/withdraw.go",
		old: `		k.job.vainWaits.note(wait)
`,
		new: `		k.job.vainWaits.note(of.beginWait())
		_ = wait
`,
		why: "a wait in vain counts for sends that were over when it ended", test: "internal/comm TestInterleaveSendsThatAreOver"},
	{file: "internal/comm/withdraw.go",
		old: `		if b == nil || !b.GiveUp(q, why) {
`,
		new: `		if b.GiveUp(q, why); b == nil {
`,
		why: "a matched message whose data do not come is given up without breaking the communicator", test: "internal/comm TestInterleaveSendsThatAreOver"},
	{file: "internal/comm/withdraw.go",
		old: `timed && !end.After(v.began)`,
		new: `timed && (!end.After(v.began) || true)`,
		why: "a wait in vain counts for sends whose deadline had not passed", test: "internal/comm TestInterleaveSendsThatAreOver"},
	{file: "internal/comm/persistent.go",
		old: `	if q.reopen(phaseStarting) {
		k.bc.Wake()
	}
`,
		new: `	q.reopen(phaseStarting)
`,
		why: "a start that completes at once wakes nobody", test: "internal/comm TestInterleavePersistentCompletesAtOnce"},
	{file: "internal/comm/completion.go",
		old: `func (s *completion) claim() bool { return s.move(phaseOpen, phaseClaimed) }`,
		new: `func (s *completion) claim() bool {
	if s.phase() != phaseOpen {
		return false
	}
	word.AddUint32(&s.word, uint32(phaseClaimed-phaseOpen))
	return true
}`,
		why: "a completion is claimed by looking", test: "internal/comm TestInterleaveRequestHasTwoUsers/Wait_Wait"},
	{file: "internal/comm/sets.go",
		old: `		if q != nil && (q.ready()`,
		new: `		if q.live() && (q.ready()`,
		why: "a set that waits forgets a request that another goroutine has returned", test: "internal/comm TestInterleaveRequestHasTwoUsers/Wait_WaitAny"},
	{file: "internal/comm/request.go",
		old: `	case others:
		k.bc.Wake()`,
		new: `	case others:`,
		why: "the goroutine that ends an operation at its deadline does not wake the others", test: "internal/comm TestInterleaveDeadlineAgainstCompletion"},
	{file: "internal/comm/request.go",
		old: `free, others := q.publish(to, underWay)`,
		new: `free, others := q.publish(to, false)`,
		why: "an operation that is given up is given back while it is under way", test: "internal/comm TestInterleaveDeadlineAgainstCompletion"},
	{file: "internal/comm/completion.go",
		old: `	return s.move(phaseComplete, phaseReturned) ||`,
		new: `	return s.pass() ||`,
		why: "two sets take an operation that was complete at its start", test: "internal/comm TestInterleaveCompleteRequestHasTwoUsers"},
	{file: "internal/comm/sets.go",
		old: `		if took = q.markReturned(); took {`,
		new: `		if took = q.live(); took {
			q.markReturned()`,
		why: "two sets take a stored result by looking", test: "internal/comm TestInterleaveDeadlineAgainstCompletion"},
	{file: "internal/comm/completion.go",
		old: `	if word.CompareAndSwapUint32(&s.word, uint32(phaseReturned), uint32(phaseStarting)) {`,
		new: `	if s.move(phaseReturned, phaseStarting) {`,
		why: "a start reuses a record that a goroutine in Wait holds", test: "internal/comm TestInterleavePersistent.*"},
	{file: "internal/comm/unwaited.go",
		old: `		if word.CompareAndSwapUint32(&q.word, uint32(phaseOpen)+oneHold, uint32(phaseClaimed)+oneHold) {`,
		new: `		if word.LoadUint32(&q.word) == uint32(phaseOpen)+oneHold {
			word.AddUint32(&q.word, uint32(phaseClaimed-phaseOpen))`,
		why: "Close claims an operation by looking", test: "internal/comm TestInterleaveCloseLooksBesideUser"},
	{file: "internal/comm/unwaited.go",
		old: `			q.reopen(phaseClaimed)
			k.bc.Wake()`,
		new: `			q.reopen(phaseClaimed)`,
		why: "Close does not wake the goroutines that wait for its claim", test: "internal/comm TestInterleaveCloseLooksBesideUser"},
	{file: "internal/comm/request.go",
		old: `	if kept && underWay {`,
		new: `	if false {`,
		why: "a start that was given up ends as one that is over, and another one begins beside it", test: "internal/comm TestInterleavePersistentGivenUpBesideStart"},
	{file: "internal/comm/request.go",
		old: `	return p != phaseClaimed && p != phaseStarting
`,
		new: `	return p != phaseClaimed || p != phaseStarting
`,
		why: "waiters do not wait for the goroutine that ends the operation", test: "internal/comm TestInterleaveDeadlineAgainstCompletion"},
	{file: "internal/comm/sets.go",
		old: `	for len(done) == 0 && s.wait() {`,
		new: `	if s.wait() {`,
		why: "WaitSome returns nothing when another goroutine was faster", test: "internal/comm TestInterleaveSets.*"},
	{file: "internal/comm/request.go",
		old: `why != nil && q.claim() {
				return q.giveUp(why, to)`,
		new: `why != nil {
				return q.giveUp(why, to)`,
		why: "a deadline ends an operation without claiming it", test: "internal/comm TestInterleaveDeadlineAgainstCompletion"},
	{file: "internal/sched/op.go",
		old: `		o.data.buffers.Lock() // local does not use them after that
		defer o.data.buffers.Unlock()
`,
		new: ``,
		why: "a call ends at its deadline while its reduction writes to the result", test: "internal/sched TestInterleaveBuffersAfterEnd"},
	{file: "internal/sched/op.go",
		old: `	if o.decide(v) {
		o.r.breakComm(v.err)`,
		new: `	if o.decide(v) || true {
		o.r.breakComm(v.err)`,
		why: "a deadline breaks the communicator of an operation that has completed", test: "internal/sched TestInterleaveEndAgainstCompletion/success"},
	{file: "internal/sched/phase.go",
		old: `p.check() != checking && p.data() != moving {`,
		new: `p.data() != moving {`,
		why: "an operation completes before its check", test: "internal/sched TestInterleaveEndAgainstCompletion/both"},
	{file: "internal/sched/phase.go",
		old: `	if !o.decide(success) {
		o.enter(silent)
	}`,
		new: `	o.verdict.Store(success)`,
		why: "an operation completes after it was given up", test: "internal/sched TestInterleaveEndAgainstCompletion"},
	{file: "internal/sched/data.go",
		old: `				d.err = err
				d.o.moved()`,
		new: `				d.err = err`,
		why: "an operation whose function ends the goroutine never ends", test: "internal/sched TestInterleaveEndAgainstCompletion/Goexit"},
	{file: "internal/sched/data.go",
		old: `				d.err = err
				d.o.moved()`,
		new: `				d.o.moved()`,
		why: "an operation whose function ends the goroutine succeeds", test: "internal/sched TestInterleaveEndAgainstCompletion/Goexit"},
	{file: "internal/sched/phase.go",
		old: `v == success || v != nil && o.now().data() == silent`,
		new: `v != nil`,
		why: "an operation is ready while its messages are pending", test: "internal/sched TestInterleaveEndAgainstCompletion"},
	{file: "internal/comm/group.go",
		old: `all.number != mine.number {`,
		new: `all.number == 0 {`,
		why: "a member takes the answer to an earlier call", test: "internal/comm TestInterleaveCreateGroupAgain"},
	{file: "internal/comm/group.go",
		old: `x.number != g.taken[i]+1 || x.id != mine.id`,
		new: `x.id != mine.id`,
		why: "the leader takes the claim of another call", test: "internal/comm TestInterleaveCreateGroupAgain"},
	{file: "internal/comm/group.go",
		old: `all.ok == gaveUp`,
		new: `all.ok == gaveUp+1`,
		why: "a member takes for an answer that the leader has given up", test: "internal/comm TestInterleaveCreateGroupAgain"},
	{file: "internal/comm/group.go",
		old: `		k.claims[from] = x
`,
		new: ``,
		why: "a claim is lost with the call that has not answered it", test: "internal/comm TestInterleaveCreateGroupAgain"},
}
