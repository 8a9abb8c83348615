package mutants

// How ranks sleep, and how frames travel between two of them: internal/gate, wait, node, memlink.
var linkMutants = []mutant{
	{file: "internal/gate/gate.go",
		old: `		if g.count.CompareAndSwap(n, n+1) {
			return true
		}`,
		new: `		g.count.Add(1)
		return true`,
		why: "Enter looks and then acts", test: "internal/gate TestInterleaveGate"},
	{file: "internal/gate/gate.go",
		old: `		n := g.count.Load()
		if n&shut != 0 {
			return false
		}
		if g.count.CompareAndSwap(n, n+1) {
			return true
		}
`,
		new: `		if g.count.Add(1)&shut == 0 {
			return true
		}
		g.Leave()
		return false
`,
		why: "a refused Enter is inside for a moment", test: "internal/comm TestInterleaveRefusedAccessBesideClose"},
	{file: "internal/gate/gate.go",
		old: `p != nil {
			p.Unpark()`,
		new: `p == nil {
			p.Unpark()`,
		why: "Leave wakes nobody", test: "internal/gate TestInterleaveGate"},
	{file: "internal/gate/gate.go",
		old: `	g.waiter.Store(p)
	for !g.Empty() {`,
		new: `	for !g.Empty() {
		g.waiter.Store(p)`,
		why: "AwaitEmpty announces itself after the look", test: "internal/gate TestInterleaveGate"},
	{file: "internal/gate/gate.go",
		old: `g.count.Or(shut)&shut == 0 }`,
		new: `g.count.Or(shut)&shut == 0 && g.Empty() }`,
		why: "Shut decides twice", test: "internal/gate TestInterleaveGate"},
	{file: "internal/memlink/link.go",
		old: `	case l.in.peek() != nil: // it came meanwhile
		return true, nil
`,
		new: `	case l.in.peek() != nil: // it came meanwhile
`,
		why: "a read that has seen a frame reports nothing", test: "internal/memlink TestInterleaveRing"},
	{file: "internal/memlink/ring.go",
		old: `s.r.head.Load()
	if h == s.head`,
		new: `s.r.head.Load() + 1
	if h == s.head`,
		why: "the sender takes a cell back too early", test: "internal/memlink TestInterleaveRing"},
	{file: "internal/memlink/ring.go",
		old: `r.r.head.Store(r.next)`,
		new: `r.r.head.Store(r.next + 1)`,
		why: "the receiver gives a cell back before it has read it", test: "internal/memlink TestInterleaveRing"},
	{file: "internal/memlink/ring.go",
		old: `		s.refresh()
		if s.tail-s.head >= cells {`,
		new: `		s.refresh()
		if s.tail-s.head > cells {`,
		why: "the sender overwrites the oldest cell of a full ring", test: "internal/memlink TestInterleaveRing"},
	{file: "internal/memlink/ring.go",
		old: `	s.free = s.ends[(h-1)%cells]`,
		new: `	s.free = s.ends[h%cells]`,
		why: "the sender takes too much of the data ring back", test: "internal/memlink TestInterleaveRing"},
	{file: "internal/memlink/link.go",
		old: `	mailbox := l.cfg.Hears.state.Load()
	switch {
	case !l.heard && l.cfg.Hears.posted():
		return true, l.fetch(a)
	case !l.heard && mailbox&mailboxMade != 0:
		l.open()
		l.hear()
		return true, nil
	case l.in.peek() != nil:`,
		new: `	came := l.in.peek() != nil
	mailbox := l.cfg.Hears.state.Load()
	switch {
	case !l.heard && l.cfg.Hears.posted():
		return true, l.fetch(a)
	case !l.heard && mailbox&mailboxMade != 0:
		l.open()
		l.hear()
		return true, nil
	case came:`,
		why: "a goodbye overtakes the last frames", test: "internal/memlink TestInterleaveRingOfDeadSender"},
	{file: "internal/memlink/make.go",
		old: `	if err := l.cfg.Make(); err != nil {
		return err
	}
	l.open()
	return nil`,
		new: `	l.cfg.Says.state.Or(mailboxMade)
	if err := l.cfg.Make(); err != nil {
		return err
	}
	l.open()
	return nil`,
		why: "a rank says that there are rings before there are", test: "internal/memlink TestInterleaveFirstFrames"},
	{file: "internal/memlink/link.go",
		old: `	mailbox := l.cfg.Hears.state.Load()
	switch {
	case !l.heard && l.cfg.Hears.posted():
		return true, l.fetch(a)
	case !l.heard && mailbox&mailboxMade != 0:`,
		new: `	posted := l.cfg.Hears.posted()
	mailbox := l.cfg.Hears.state.Load()
	switch {
	case !l.heard && posted:
		return true, l.fetch(a)
	case !l.heard && mailbox&mailboxMade != 0:`,
		why: "the last notice before there were rings is not looked for", test: "internal/memlink TestInterleaveFirstFrames"},
	{file: "internal/memlink/link.go",
		old: `	case !l.heard && mailbox&mailboxMade != 0:`,
		new: `	case !l.heard && mailbox&(mailboxMade|mailboxLeft) == mailboxMade:`,
		why: "the frames of a rank that has left are not looked for", test: "internal/memlink TestInterleaveFirstFrames"},
	{file: "internal/memlink/link.go",
		old: `	case mailbox&mailboxGone != 0:
		return moved, errGone
`,
		new: ``,
		why: "a rank does not see that the other has given the link up", test: "internal/memlink TestInterleaveFirstFrames"},
	{file: "internal/memlink/link.go",
		old: `	switch {
	case !l.heard && l.cfg.Hears.posted():`,
		new: `	switch {
	case mailbox&mailboxGone != 0:
		return moved, errGone
	case !l.heard && l.cfg.Hears.posted():`,
		why: "the end of a link overtakes the last frames", test: "internal/memlink TestInterleaveFirstFrames"},
	{file: "internal/memlink/transfer.go",
		old: `v>>32 == t.gen && uint32(v) < t.chunks && !l.dead()`,
		new: `v>>32 == t.gen && uint32(t.desc.claimed.Load()) < t.chunks && !l.dead()`,
		why: "a receive ends when all chunks are claimed", test: "internal/memlink TestInterleaveTransfer"},
	{file: "internal/memlink/transfer.go",
		old: `		t.chunks = t.desc.claimed.fill(t.gen, t.chunks)
	}
}`,
		new: `		t.chunks = 0
	}
}`,
		why: "Stop gives the buffer back under the sender", test: "internal/memlink TestInterleaveTransfer"},
	{file: "internal/memlink/transfer.go",
		old: `	if d.state.Load() != descState(gen, descAnnounced) {
		return false // own`,
		new: `	if d.state.Load() == 0 {
		return false // own`,
		why: "a revoked message changes where the next one goes", test: "internal/memlink TestInterleaveTransferAgain"},
	{file: "internal/memlink/transfer.go",
		old: `	withdrawn := t.desc.state.CompareAndSwap(descState(t.gen, descTaken), descState(t.gen, descFree)) ||`,
		new: `	withdrawn := t.desc.state.Load() == descState(t.gen, descTaken)
	t.desc.state.Store(descState(t.gen, descFree))
	withdrawn = withdrawn ||`,
		why: "Withdraw looks and then acts", test: "internal/memlink TestInterleaveTransfer"},
	{file: "internal/memlink/transfer.go",
		old: `	withdrawn := t.desc.state.CompareAndSwap(descState(t.gen, descTaken), descState(t.gen, descFree)) ||
		t.desc.state.Load() == descState(t.gen, descRefused)`,
		new: `	withdrawn := t.desc.state.Load() == descState(t.gen, descRefused) ||
		t.desc.state.CompareAndSwap(descState(t.gen, descTaken), descState(t.gen, descFree))`,
		why: "a message that is refused just then counts as received", test: "internal/memlink TestInterleaveTransfer"},
	{file: "internal/memlink/transfer.go",
		old: `		t.desc.claimed.fill(t.gen, chunks) // this rank copies no more
`,
		new: ``,
		why: "a sender copies into a buffer of a refused transfer", test: "internal/memlink TestInterleaveTransfer"},
	{file: "internal/memlink/transfer.go",
		old: `t.end != nil && t.end != ErrRefused {`,
		new: `t.end != nil {`,
		why: "a refused receive cannot be stopped", test: "internal/memlink TestTransferThatCannotCopyIsRefused", plain: true},
	{file: "internal/memlink/transfer.go",
		old: `l.dead() || l.cfg.Kill == nil:`,
		new: `l.dead() || l.cfg.Kill != nil:`,
		why: "Fence does not kill", test: "internal/memlink TestInterleaveFence"},
	{file: "internal/memlink/link.go",
		old: `return l.ended.Load() != nil }`,
		new: `e := l.ended.Load(); return e != nil && *e == io.EOF }`,
		why: "a sender whose socket was reset may still copy", test: "internal/memlink TestInterleaveTransferOfDeadRank"},
	{file: "internal/memlink/transfer.go",
		old: `	if !t.desc.state.CompareAndSwap(descState(t.gen, descAnnounced), descState(t.gen, descFree)) {
		return false
	}`,
		new: `	if t.desc.state.Load() != descState(t.gen, descAnnounced) {
		return false
	}`,
		why: "Revoke looks and then acts", test: "internal/memlink TestInterleaveRevokeBesideAccept"},
	{file: "internal/memlink/link.go",
		old: `	l.fence.Store(0)
	l.Ring()`,
		new: `	l.Ring()`,
		why: "a sender looks for sleepers before its cell is visible", test: "internal/memlink TestInterleaveSleepingRanks"},
	{file: "internal/memlink/ring.go",
		old: `	if r.next-r.acked < cells/4 &&`,
		new: `	if r.next-r.acked <= cells &&`,
		why: "the receiver gives no cell back", test: "internal/memlink TestInterleaveSleepingRanks"},
	{file: "internal/wait/bell.go",
		old: `word.FutexWait(&b.rung, seen, timeout)`,
		new: `word.FutexWait(&b.rung, b.rung.Load(), timeout)`,
		why: "the value slept on is read after the look", test: "internal/wait TestInterleaveBell"},
	{file: "internal/wait/bell.go",
		old: `	if b.Armed() {
		b.rung.Add(1)`,
		new: `	if b.asleep.CompareAndSwap(1, 0) {
		b.rung.Add(1)`,
		why: "a ringer takes the announcement back", test: "internal/wait TestInterleaveBellOfStoppedRinger"},
	{file: "internal/node/node.go",
		old: `		n.cfg.Bell(rank)
		n.told`,
		new: `		a.bell.Disarm()
		n.cfg.Bell(rank)
		n.told`,
		why: "a rank takes another's announcement back before it sends what wakes it", test: "internal/node TestInterleaveBellOfStoppedRank"},
	{file: "internal/node/node.go",
		old: `	if sleep := a.sleeps.Load(); n.told[rank].Load() != sleep {
		n.cfg.Bell(rank)
		n.told[rank].Store(sleep)`,
		new: `	if n.told[rank].Load() != a.sleeps.Load() {
		n.cfg.Bell(rank)
		n.told[rank].Store(a.sleeps.Load())`,
		why: "a ring counts for a sleep that began after it", test: "internal/node TestInterleaveBellOfStoppedRank"},
	{file: "internal/node/holders.go",
		old: `		if w&pairState == pairShared {`,
		new: `		if w&pairState == pairLeft {`,
		why: "rings are free as soon as one of two ranks is done", test: "internal/node TestInterleaveRingsGivenBack"},
	{file: "internal/node/holders.go",
		old: `		next := (w>>2 + 1) << 2 // free`,
		new: `		next := w >> 2 << 2 // free`,
		why: "an offer that was taken back can be taken", test: "internal/node TestInterleaveRingsGivenBack"},
	{file: "internal/node/layout.go",
		old: `	v.word.CompareAndSwap(undecided, what)
`,
		new: `	if v.word.Load() == undecided {
		v.word.Store(what)
	}
`,
		why: "a rank gives up while rank 0 starts the job", test: "internal/node TestInterleaveVerdict"},
	{file: "internal/wait/crew.go",
		old: `	if m.leave || c.last != nil || m.w.Ready() {`,
		new: `	if m.leave || c.last != nil {`,
		why: "the leader announces its sleep and does not look again", test: "internal/wait TestInterleaveCrewBesideEnd"},
	{file: "internal/wait/crew.go",
		old: `		c.awake(l)
		c.Links.Ring()`,
		new: `		c.awake(l)`,
		why: "the leader's announcement is taken back without a ring", test: "internal/wait TestInterleaveCrewRouse"},
	{file: "internal/wait/crew.go",
		old: `		next = c.first
		if next != nil {`,
		new: `		if next = c.first; next != nil && next.next != nil {`,
		why: "the leader leaves without a successor", test: "internal/wait TestInterleaveCrew"},
	{file: "internal/wait/crew.go",
		old: `	if l := c.leader; l != nil && l.state == resting && l.w.Ready() {
		c.rouse()
	}
	c.mu.Unlock()`,
		new: `	c.mu.Unlock()`,
		why: "a completion wakes the followers and not the leader", test: "internal/wait TestInterleaveCrewBesideProgress"},
}
