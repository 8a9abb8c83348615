package mutants

// Collectives in shared memory: internal/board.
var boardMutants = []mutant{
	{file: "internal/board/end.go",
		old: `	return g != gateShut
}

// claim`,
		new: `	return true
}

// claim`,
		why: "a late call enters slots that were given back", test: "internal/board TestInterleaveReuse"},
	{file: "internal/board/end.go",
		old: `	for g != gateShut && !word.CompareAndSwapUint32(&s.gate, g, gateInside) {
		g = word`,
		new: `	if g != gateShut && !word.CompareAndSwapUint32(&s.gate, g, gateInside) {
		g, _ = gateShut, word`,
		why: "a call that begins while the communicator is revoked says that it was closed", test: "internal/board TestInterleaveEndsOfCollective"},
	{file: "internal/board/end.go",
		old: `	s.shut(gateUnused, gateOutside)
`,
		new: `	s.shut(gateUnused, gateOutside, gateInside)
`,
		why: "slots are given back while a goroutine is inside", test: "internal/board TestInterleaveReuse"},
	{file: "internal/board/peers.go",
		old: `	if err == nil && p.inSlots && p.s.unsound() >= 0 {`,
		new: `	if false {`,
		why: "the keys are not looked at again after the data", test: "internal/board TestInterleaveReuse"},
	{file: "internal/board/end.go",
		old: `		s.mine.reason.set(f)
		s.mine.ended.Store(was | endedFault)`,
		new: `		s.mine.ended.Store(was | endedFault)
		s.mine.reason.set(f)`,
		why: "the flag overtakes the reason", test: "internal/board TestInterleave(Deadline|Synchronization)"},
	{file: "internal/board/end.go",
		old: `s.b.head(r).news.Add(1)`,
		new: `_ = r`,
		why: "a rank that publishes a reason does not say that it has", test: "internal/board TestInterleaveSynchronization"},
	{file: "internal/board/await.go",
		old: `s.b.lost() || s.news() != nil || `,
		new: `s.b.lost() || `,
		why: "a waiter does not look at the reasons of the others", test: "internal/board TestInterleaveSynchronization"},
	{file: "internal/board/peers.go",
		old: `	release(&to.key, 0) // before the rest`,
		new: `	release(&to.key, p.s.keyOf(p.s.seq)) // before the rest`,
		why: "a rank has arrived before its data", test: "internal/board TestInterleaveCallsAhead"},
	{file: "internal/board/peers.go",
		old: `	release(&to.key, 0) // before the rest`,
		new: ``,
		why: "a slot is overwritten under its old key", test: "internal/board TestInterleaveVerifyBesideCalls"},
	{file: "internal/board/collective.go",
		old: `		release(&s.mine.calls[(s.seq+1)%slotsDeep].key, 0)`,
		new: `		release(&s.mine.calls[(s.seq+3)%slotsDeep].key, 0)`,
		why: "a slot is emptied that another rank still looks for", test: "internal/board TestInterleaveThreeRanks"},
	{file: "internal/board/layout.go",
		old: `	dataDeep  = ahead + 1`,
		new: `	dataDeep  = ahead`,
		why: "data are overwritten that others still read", test: "internal/board TestInterleaveCallsAhead"},
	{file: "internal/board/layout.go",
		old: `areasDeep = dataDeep + 1`,
		new: `areasDeep = dataDeep`,
		why: "the areas of calls overlap once one has begun anew at the start", test: "internal/board TestAreasOfCallsThatMayBeReadDoNotOverlap", plain: true},
	{file: "internal/board/areas.go",
		old: `s.areas.next += (n + line - 1) &^ (line - 1)`,
		new: `s.areas.next += 0`,
		why: "a rank overwrites an area that others still read", test: "internal/board TestInterleaveCallsAhead"},
	{file: "internal/board/collective.go",
		old: `	if s.behind {
		s.awaitAll(catchingUp, s.seq+1-ahead)`,
		new: `	if false {
		s.awaitAll(catchingUp, s.seq+1-ahead)`,
		why: "a rank is further ahead than there are slots", test: "internal/board TestInterleaveCallsAhead"},
	{file: "internal/board/verdict.go",
		old: `	slices.SortFunc(calls, func(a, b uint64) int { return int(int32(uint32(a>>32) - uint32(b>>32))) })
`,
		new: `	slices.SortFunc(calls, func(a, b uint64) int { return int(int32(uint32(a>>32) - uint32(b>>32))) })
	calls = calls[:min(len(calls), 1)]
`,
		why: "Verify looks at the oldest call alone", test: "internal/board TestInterleaveVerdict(OfOldCall)?"},
	{file: "internal/board/verdict.go",
		old: `	if s.c.Await(&backend.Bound{Timeout: limit}, (*quiescing)(s)) != nil {`,
		new: `	if limit < 0 {`,
		why: "Close does not wait for the calls in which this rank did not wait", test: "internal/board TestInterleaveVerdict(OfOldCall)?"},
	{file: "internal/board/verdict.go",
		old: `	_ = s.Verify()
	if err := s.stopped(); errors`,
		new: `	if err := s.Verify(); errors`,
		why: "Close does not ask what the others have found", test: "internal/board TestInterleaveVerdict(OfOldCall)?"},
	{file: "internal/board/verdict.go",
		old: `	return f, key == s.keyOf(n) && word.LoadUint64(&p.key) == key`,
		new: `	return f, key == s.keyOf(n)`,
		why: "a fingerprint is read from a slot that is being used again", test: "internal/board TestInterleaveVerifyBesideCalls"},
	{file: "internal/board/op.go",
		old: `	if o.giveUp(backend.While(why, fmt.Sprintf("rank %d gave up %v", o.s.c.Rank(), o.call.Fingerprint()))) {
		o.end(o.s.late(why, &o.call))
	}`,
		new: `	if !o.Ready() {
		err := o.s.late(why, &o.call)
		if _ = fmt.Sprint; o.giveUp(nil) {
			o.end(err)
		}
	}`,
		why: "completed and given up are two decisions", test: "internal/board TestInterleaveDeadline"},
	{file: "internal/board/op.go",
		old: `given != nil && s.stage == failed {`,
		new: `false {`,
		why: "a deadline hides a mismatch that has been found", test: "internal/board TestInterleaveDeadline/mismatch"},
	{file: "internal/board/await.go",
		old: `r > s.seen && s.checkArrival(r)`,
		new: `s.checkArrival(r)`,
		why: "an error of a deadline names no rank if the last one arrives meanwhile", test: "internal/board TestInterleaveDeadline/blocking"},
	{file: "internal/board/await.go",
		old: `	s.fresh = false
	s.exchange.Store(0)
`,
		new: `	s.fresh = false
`,
		why: "an arrival is still in the store buffer when its rank looks who sleeps", test: "internal/board TestInterleaveSleep"},
	{file: "internal/board/await.go",
		old: `		s.exchange.Store(0)
		s.fresh = s.arrived() // else`,
		new: `		s.fresh = s.arrived() // else`,
		why: "two ranks arrive at once, and each takes the other for the last", test: "internal/board TestInterleaveSleep"},
	{file: "internal/board/await.go",
		old: ` || word.LoadUint64(&o.found[s.seq%dataDeep].key) != s.keyOf(s.seq) {`,
		new: ` {`,
		why: "a rank takes the result of another communicator", test: "internal/board TestInterleaveReuse"},
	{file: "internal/board/await.go",
		old: `	s.await(calling, int(r), int(r)+1, s.seq)
`,
		new: `	s.await(calling, int(r), int(r), s.seq)
`,
		why: "a result is taken from slots that were given back", test: "internal/board TestInterleaveReuse"},
	{file: "internal/board/await.go",
		old: `		s.compared.upTo[i] = s.seq
`,
		new: `		_ = i
`,
		why: "a rank that has taken results compares calls whose slots were used again", test: "internal/board TestRankFollowsAnotherForManyCalls", plain: true},
	{file: "internal/board/peers.go",
		old: `	if p.s.phase == asking && err == nil {`,
		new: `	if p.s.phase == asking {`,
		why: "a rank publishes a result of slots that were given back", test: "internal/board TestRankTakesNoResultOfReusedSlots", plain: true},
	{file: "internal/board/op.go",
		old: ` && word.LoadUint32(&s.gate) != gateShut {`,
		new: ` {`,
		why: "an operation publishes in slots that were given back", test: "internal/board TestOperationLeavesSlotsAloneThatWereGivenBack", plain: true},
	{file: "internal/board/op.go",
		old: `		if _, err := s.side.complete(nil, &o.call); err != nil || s.b.lost() {`,
		new: `		if _, _ = s.side.complete(nil, &o.call); s.b.lost() {`,
		why: "the keys are not looked at again after the data of an operation", test: "internal/board TestDataOfReusedSlotsAreAnError", plain: true},
	{file: "internal/board/board.go",
		old: `	own.ended.Store(0)
`,
		new: ``,
		why: "the reason of another communicator stays in the slots", test: "internal/board TestInterleaveReuse"},
	{file: "internal/board/verdict.go",
		old: `	missing, _, err := s.compare(s.compared.first)
	if err == nil {`,
		new: `	missing, _, err := s.compare(s.compared.first)
	if err == nil && false {`,
		why: "a mismatch is reported without the calls", test: "internal/board TestInterleaveMismatch"},
	{file: "internal/board/op.go",
		old: `				s.exchange.Store(0) // of ranks that arrive at once, one sees the others and wakes those that sleep
`,
		new: ``,
		why: "of ranks that arrive at once, none sees the others", test: "internal/board TestInterleavePersistentArriveAtOnce"},
	{file: "internal/board/verdict.go",
		old: `	done := s.mine.done.Load()
	for r`,
		new: `	done := uint32(0)
	for r`,
		why: "Close does not wait until the others have ended a neighborhood call", test: "internal/board TestInterleaveNeighborhoodsAndClose"},
	{file: "internal/board/verdict.go",
		old: `		s.leave()
		s.wake()`,
		new: `		s.leave()`,
		why: "the end of a neighborhood call wakes nobody", test: "internal/board TestInterleaveNeighborhoodsAndClose"},
	{file: "internal/board/board.go",
		old: `	own.done.Store(0)
`,
		new: ``,
		why: "a neighborhood call of another communicator counts", test: "internal/board TestInterleaveNeighborhoodsAndClose/true"},
	{file: "internal/board/peers.go",
		old: `		p.s.retract()
		p.s.leave()`,
		new: `		p.s.retract()`,
		why: "an operation that ends its goroutine keeps the slots", test: "internal/board TestInterleaveUserOpFails"},
	{file: "internal/board/peers.go",
		old: `	if p.s.c.Break(err); exits {`,
		new: `	if exits {`,
		why: "an operation that fails does not end the communicator", test: "internal/board TestInterleaveUserOpFails"},
}
